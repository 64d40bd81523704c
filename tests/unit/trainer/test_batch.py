"""Packing, loss and learner: the packed tree computes exactly what plain rows compute."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmax.errors import ConfigError, UsageError
from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import AlgorithmConfig, LoraConfig, build_config
from benchmax.trainer.learning.batch import Batch, sequence_of
from benchmax.trainer.learning.learner import Aborted, Learner
from benchmax.trainer.learning.loss import LossStats, grpo_loss, select_logprobs
from benchmax.trainer.learning.optim import Optimizer
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.tiny_model import make_tiny

torch.set_num_threads(1)  # the models are tiny


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"), hidden=32, layers=2)


@pytest.fixture
def policy(directory):
    torch.manual_seed(0)
    return Policy.from_directory(directory, tune="full")


def rollout(*segments: tuple[list[int], bool], advantage: float = 1.0, logprob: float | None = None) -> Rollout:
    tokens = [
        TokenSegment(ids, sampled, [logprob] * len(ids) if sampled and logprob is not None else None)
        for ids, sampled in segments
    ]
    return Rollout("r", "e", tokens=tokens, advantage=advantage, ok=True, reward=0.0)


def make_groups(seed: int = 0, groups: int = 4, size: int = 4, turns: int = 1) -> list[list[Rollout]]:
    rng = random.Random(seed)
    system = [rng.randrange(60) for _ in range(5)]
    made = []
    for _ in range(groups):
        prompt = system + [rng.randrange(60) for _ in range(rng.randrange(1, 6))]
        group = []
        for _ in range(size):
            segments = [(prompt, False)]
            for _ in range(turns):
                segments.append(([rng.randrange(4) for _ in range(rng.randrange(1, 8))], True))
                segments.append(([rng.randrange(60) for _ in range(rng.randrange(0, 4))], False))
            group.append(rollout(*segments, advantage=rng.gauss(0, 1), logprob=-1.0))
        made.append(group)
    return made


def plain_logprobs(policy: Policy, batch: Batch) -> torch.Tensor:
    """One unpacked row at a time through the whole transformers model."""
    rows = []
    for sequence in batch.sequences:
        ids = torch.from_numpy(sequence.ids)
        logp = torch.log_softmax(policy.model(ids[None]).logits[0].float(), -1)
        targets = torch.from_numpy(sequence.targets)
        rows.append(logp[targets - 1, ids[targets]])
    return torch.cat(rows)


def packed_logprobs(policy: Policy, batch: Batch, budget: int, row: int) -> torch.Tensor:
    out = torch.full((len(batch),), math.nan)
    for micro in batch.micro_batches(budget, row):
        out = out.index_put((micro.token,), policy.logprobs(micro)[0])
    return out


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize(("budget", "row"), [(16, 16), (64, 32), (100_000, 100_000)])
def test_packed_equals_unpacked(policy, budget, row, turns):
    batch = Batch.of(sequence_of(item, g) for g, group in enumerate(make_groups(turns=turns)) for item in group)
    with torch.no_grad():
        packed, plain = packed_logprobs(policy, batch, budget, row), plain_logprobs(policy, batch)
    assert torch.allclose(packed, plain, atol=1e-4)
    assert (packed - plain).abs().max() < 1e-5


def test_gradients_of_shared_tokens_are_the_sum(policy):
    groups = [[rollout(([5, 6, 7], False), ([8, 9], True)) for _ in range(3)]]
    batch = Batch.of(sequence_of(item) for item in groups[0])
    assert sum(micro.input_ids.numel() for micro in batch.micro_batches(64, 64)) == 4, "equal samples are one path"
    packed_logprobs(policy, batch, 64, 64).sum().backward()
    packed = {name: weight.grad.clone() for name, weight in policy.parameters().items()}
    policy.model.zero_grad()
    plain_logprobs(policy, batch).sum().backward()
    for name, weight in policy.parameters().items():
        assert torch.allclose(packed[name], weight.grad, atol=1e-4), name


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1, max_size=12),
    st.integers(4, 40),
)
def test_trees_hold_every_path(rows, row_tokens):
    """Following the mask from any loss token gives back exactly its own history."""
    batch = Batch.of(sequence_of(rollout((row[:1], False), (row[1:], True))) for row in rows)
    seen = set()
    for micro in batch.micro_batches(40, row_tokens):
        length = micro.input_ids.shape[1]
        assert micro.input_ids.numel() <= 40
        for slot, target, token in zip(micro.slot, micro.target, micro.token, strict=True):
            line, place = divmod(int(micro.query[slot]), length)
            path = micro.mask[line, 0, place].nonzero()[:, 0]
            order = path[micro.position_ids[line, path].argsort()]
            sequence = batch.sequences[int(batch.sequence[token])]
            index = int(token) - batch.first[int(batch.sequence[token])] + 1
            assert micro.input_ids[line, order].tolist() == sequence.ids[:index].tolist()
            assert micro.position_ids[line, order].tolist() == list(range(index))
            assert int(target) == sequence.ids[index]
            seen.add(int(token))
    assert seen == set(range(len(batch)))


def test_observed_tokens_are_masked():
    sequence = sequence_of(rollout(([1, 2], False), ([3], True), ([4, 5], False), ([6, 7], True), ([8], False)))
    assert sequence.ids[sequence.targets].tolist() == [3, 6, 7]
    assert len(sequence.ids) == 7, "what follows the last sampled token is dropped"


@pytest.mark.parametrize("how", ["token", "sequence", "constant"])
def test_normalisation(how):
    batch = Batch.of([sequence_of(rollout(([1], False), (list(range(n)), True))) for n in (2, 6)])
    weights = batch.weights(how, 10)
    expected = {"token": [1 / 8] * 8, "sequence": [1 / 4] * 2 + [1 / 12] * 6, "constant": [1 / 20] * 8}
    assert torch.allclose(weights, torch.tensor(expected[how]))


def loss_of(logp, old, advantage, **rule):
    one = torch.ones(1)
    return grpo_loss(
        torch.tensor([logp]), old=torch.tensor([old]), sampler=torch.tensor([math.nan]),
        advantage=advantage * one, weight=one, rule=AlgorithmConfig(**rule),
    ).item()  # fmt: skip


def test_clip_is_higher_above_than_below():
    up, down = math.log(1.5), math.log(0.5)
    assert loss_of(up, 0.0, 1.0) == pytest.approx(-1.28)
    assert loss_of(up, 0.0, -1.0) == pytest.approx(1.5), "a worse sample made likelier is never clipped"
    assert loss_of(down, 0.0, -1.0) == pytest.approx(0.8)
    assert loss_of(down, 0.0, 1.0) == pytest.approx(-0.5)


def test_importance_correction_is_truncated_and_counted():
    one, stats = torch.ones(2), LossStats()
    args = {"old": torch.zeros(2), "sampler": torch.tensor([-0.3, -5.0]), "advantage": one, "weight": one}
    loss = grpo_loss(torch.zeros(2), **args, rule=AlgorithmConfig(importance_cap=2.0), stats=stats)
    assert loss.item() == pytest.approx(-(math.exp(0.3) + 2.0))
    assert stats.means()["drift"] == pytest.approx(2.65)
    assert grpo_loss(torch.zeros(2), **args, rule=AlgorithmConfig(importance_cap=0)).item() == pytest.approx(-2.0)


def test_kl_is_zero_at_the_base_and_pulls_back():
    logp = torch.tensor([-1.0], requires_grad=True)
    args = {"old": logp.detach(), "sampler": logp.detach(), "advantage": torch.zeros(1), "weight": torch.ones(1)}
    assert grpo_loss(logp, **args, rule=AlgorithmConfig(kl=0.5), base=torch.tensor([-1.0])).item() == 0
    grpo_loss(logp, **args, rule=AlgorithmConfig(kl=0.5), base=torch.tensor([-3.0])).backward()
    assert logp.grad.item() > 0, "minimising makes a token the base finds unlikely less likely"


def test_select_logprobs_and_entropy():
    torch.manual_seed(0)
    logits = torch.randn(5, 11)
    slot, target = torch.tensor([0, 3, 3]), torch.tensor([1, 2, 10])
    logp, entropy = select_logprobs(logits, slot, target)
    reference = torch.distributions.Categorical(logits=logits)
    assert torch.allclose(logp, torch.log_softmax(logits, -1)[slot, target], atol=1e-6)
    assert torch.allclose(entropy, reference.entropy(), atol=1e-5)


def learner(policy: Policy, **tree) -> Learner:
    tree = {"model": {"tune": policy.tune}, "optim": {"lr": 1e-2, **tree.pop("optim", {})}, **tree}
    return Learner(policy, build_config(tree))


VARIANTS = [
    {},
    {"algorithm": {"normalise": "sequence", "importance_cap": 0}},
    {"algorithm": {"normalise": "constant", "kl": 0.1}},
    {"algorithm": {"updates": 2, "minibatches": 2, "kl": 0.01}},
    {"optim": {"warmup_steps": 3, "schedule": "cosine", "weight_decay": 0.1}},
]


@pytest.mark.parametrize("tune", ["lora", "full"])
@pytest.mark.parametrize("tree", VARIANTS)
def test_every_option_makes_good_samples_likelier(directory, tune, tree):
    torch.manual_seed(0)
    policy = Policy.from_directory(directory, tune=tune, lora=LoraConfig(rank=4))
    subject = learner(policy, **tree)
    groups = make_groups()
    batch = Batch.of(sequence_of(item, g) for g, group in enumerate(groups) for item in group)
    before = (subject.score(batch) * batch.advantage).sum()
    for _ in range(3):
        report = subject.learn(groups)
    assert (subject.score(batch) * batch.advantage).sum() > before
    assert all(math.isfinite(value) for value in report.values())
    assert report["skipped_updates"] == 0
    assert report["tokens/packed"] < sum(len(sequence.ids) for sequence in batch.sequences) * 4
    assert 0 < report["entropy"] < math.log(110)
    assert ("kl" in report) == (subject.config.algorithm.kl > 0)


def test_token_budget_does_not_change_the_gradient(directory):
    grads = []
    for budget in (16, 4096):
        policy = Policy.from_directory(directory, tune="full")
        subject = learner(policy, optim={"token_budget": budget, "row_tokens": budget})
        part = subject._prepare(
            Batch.of(sequence_of(item, g) for g, group in enumerate(make_groups()) for item in group)
        )
        subject._backward(part, LossStats(), lambda: False)
        grads.append({name: weight.grad for name, weight in policy.parameters().items()})
    for name, grad in grads[0].items():
        assert torch.allclose(grad, grads[1][name], atol=1e-5), name


def weights_of(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in policy.parameters().items()}


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nan_never_reaches_the_weights(policy, poison):
    subject = learner(policy)
    groups = make_groups()
    groups[1][0].advantage = poison
    before = weights_of(policy)
    report = subject.learn(groups)
    assert report["skipped_updates"] == 1
    assert all(torch.equal(before[name], weight) for name, weight in weights_of(policy).items())
    assert subject.learn(make_groups(1))["skipped_updates"] == 0, "the next step goes on"


def test_out_of_memory_halves_the_budget_then_advises(policy, monkeypatch):
    subject = learner(policy, optim={"token_budget": 512})
    real, limit = policy.logprobs, 128

    def small_machine(micro):
        if micro.input_ids.numel() > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(micro)

    monkeypatch.setattr(policy, "logprobs", small_machine)
    assert subject.learn(make_groups(groups=16, size=8))["skipped_updates"] == 0
    assert subject.token_budget == 128
    limit = 0
    with pytest.raises(UsageError, match=r"Out of memory.*max_new_tokens"):
        subject.learn(make_groups())


def test_out_of_memory_in_the_optimizer_is_told(policy, monkeypatch):
    def full(optimizer):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Optimizer, "step", full)
    with pytest.raises(UsageError, match=r"Out of memory in the optimizer\. Lower rollouts"):
        learner(policy).learn(make_groups())


@pytest.mark.parametrize("updates", [1, 2])
def test_dropout_is_not_taken_for_a_change_of_the_policy(directory, updates):
    torch.manual_seed(0)
    policy = Policy.from_directory(directory, tune="lora", lora=LoraConfig(dropout=0.5, rank=8))
    with torch.no_grad():
        for name, weight in policy.parameters().items():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    groups = make_groups()
    batch = Batch.of(sequence_of(rollout, index) for index, group in enumerate(groups) for rollout in group)
    teacher = learner(policy, algorithm={"updates": updates}, optim={"lr": 1e-12})
    exact = teacher.score(batch)
    assert torch.equal(exact, teacher.score(batch))
    told = iter(exact.tolist())
    for rollout in (rollout for group in groups for rollout in group):
        for segment in rollout.tokens:
            if segment.sampled:
                segment.logprobs = [next(told) for _ in segment.ids]
    report = teacher.learn(groups)
    assert report["drift"] < 1e-6, "the sampler is as the policy is"
    assert policy.model.training
    if updates == 1:
        assert report["ratio"] == 1


def test_an_adapter_on_a_head_that_is_also_the_embedding_is_refused(directory):
    with pytest.raises(ConfigError, match=r"names lm_head, whose weight is also the input embedding"):
        Policy.from_directory(directory, lora=LoraConfig(targets=["lm_head", "q_proj"]))


def test_abort_before_the_first_update_leaves_the_weights(policy):
    subject = learner(policy)
    before = weights_of(policy)
    with pytest.raises(Aborted):
        subject.learn(make_groups(), abort=lambda: True)
    assert all(torch.equal(before[name], weight) for name, weight in weights_of(policy).items())


def test_sampler_weights_are_the_merged_model(directory):
    torch.manual_seed(0)
    policy = Policy.from_directory(directory, tune="lora", lora=LoraConfig(rank=4))
    learner(policy).learn(make_groups())
    pushed = policy.sampler_weights()
    plain = Policy.from_directory(directory, tune="full")
    names = dict(plain.model.named_parameters())
    assert set(pushed) < set(names), "only adapted linears travel"
    with torch.no_grad():
        for name, weight in pushed.items():
            assert not torch.equal(names[name], weight)
            names[name].copy_(weight)
        ids = torch.randint(0, 60, (1, 12))
        assert torch.allclose(plain.model(ids).logits, policy.model(ids).logits, atol=1e-4)


def test_gradient_of_selected_logprobs_is_that_of_log_softmax():
    slot, target = torch.tensor([0, 3, 3, 3]), torch.tensor([1, 2, 10, 2])
    torch.manual_seed(0)
    weight = torch.randn(4)
    ours = torch.randn(5, 11, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    (select_logprobs(ours, slot, target)[0] * weight).sum().backward()
    (torch.log_softmax(theirs, -1)[slot, target] * weight).sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
