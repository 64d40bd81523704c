"""TRL's own GRPOTrainer with our `rollout_func`: the same tokens, real steps, failures that cost no group."""

from __future__ import annotations

import math

import pytest
import torch
from trl import GRPOTrainer
from trl_world import arguments, model, teach

from benchmax.adapters.engine_model import Ask, Drawn
from benchmax.adapters.trl.rollouts import REWARD, TERMINATION, BenchmaxRollouts
from benchmax.adapters.trl.sampling import generate_with
from benchmax.errors import DatasetError, RolloutError
from benchmax.models.base import Sampling
from benchmax.rollouts import RolloutSettings, read_rollouts
from trainer_world import CASES, TEMPLATES, Script, SumEnv, expected, tokenizer

CHATML = TEMPLATES[0]


def scripted(script: Script):
    async def sample(ask: Ask) -> Drawn:
        return Drawn(*script.next_turn(ask.prompt))

    return sample


def trainer_of(rollouts: BenchmaxRollouts, encode, folder, *, student=None, **changes):
    student = student or model(encode)
    return GRPOTrainer(
        model=student, args=arguments(folder, **changes), train_dataset=rollouts.dataset(), processing_class=encode,
        rollout_func=rollouts, reward_funcs=rollouts.reward,
    )  # fmt: skip


@pytest.fixture
def opened():
    made: list[BenchmaxRollouts] = []

    def make(*given, **options) -> BenchmaxRollouts:
        made.append(BenchmaxRollouts(*given, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_trainer_receives_the_truth(case, opened, tmp_path):
    settings = RolloutSettings(max_turns=case.max_turns)
    rollouts = opened(case.env, [case.row], settings=settings, sample=scripted(Script([case])))
    encode = tokenizer(case.template)
    trainer = trainer_of(rollouts, encode, tmp_path, max_completion_length=2000)
    rows = [dict(rollouts.dataset()[0]) for _ in case.samples]
    given = trainer._generate_and_score_completions(rows)
    found = []
    for index in range(len(rows)):
        size = int(given["completion_mask"][index].sum())
        prompt = given["prompt_ids"][index][given["prompt_mask"][index].bool()].tolist()
        completion = given["completion_ids"][index][:size].tolist()
        mask = given["tool_mask"][index][:size].tolist()
        found.append((completion, prompt, mask, float(given["advantages"][index]), rows[index]))
    for (completion, prompt, mask, advantage, row), truth in zip(
        sorted(found, key=lambda each: each[0]), expected(case), strict=True
    ):
        assert completion == truth.response_ids
        assert prompt == truth.prompt_ids
        assert mask == truth.mask
        assert advantage == pytest.approx(truth.advantage, abs=1e-5)
        assert [row[REWARD], row[TERMINATION]] == [truth.reward, truth.ends]


def test_log_probs_come_with_the_tokens(opened, tmp_path):
    case = CASES[1]
    rollouts = opened(case.env, [case.row], sample=scripted(Script([case])), settings=RolloutSettings(max_turns=3))
    trainer = trainer_of(rollouts, tokenizer(case.template), tmp_path, max_completion_length=2000)
    told = rollouts([row["prompt"] for row in rollouts.dataset()] * 4, trainer)
    found = sorted(zip(told["completion_ids"], told["logprobs"], strict=True))
    for (ids, logprobs), truth in zip(found, expected(case), strict=True):
        assert ids == truth.response_ids
        assert logprobs == pytest.approx(truth.logprobs)


@pytest.fixture(scope="module")
def taught():
    """A model that calls the tool and then answers, most of the time."""
    case = next(case for case in CASES if str(case) == "chatml-tools")
    encode = tokenizer(case.template)
    student = model(encode, hidden=64)
    truths = [min((truth for truth in expected(case) if len(truth.steps) == 2), key=lambda t: len(t.response_ids))]
    teach(student, [(t.prompt_ids + t.response_ids, [0] * len(t.prompt_ids) + t.mask) for t in truths])
    return case, encode, student


def test_it_steps_on_a_tool_environment(taught, opened, tmp_path):
    case, encode, student = taught
    record = tmp_path / "rollouts.jsonl"
    rollouts = opened(SumEnv, [case.row], settings=RolloutSettings(max_turns=3), record=record)
    before = {name: weight.clone() for name, weight in student.named_parameters()}
    trainer = trainer_of(rollouts, encode, tmp_path, student=student, temperature=1.3, max_steps=3)
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 3
    assert all(math.isfinite(entry["loss"]) for entry in steps)
    assert any(entry["benchmax/tool_calls"] > 0 for entry in steps)
    assert any(not torch.equal(before[name], weight) for name, weight in student.named_parameters())
    played = list(read_rollouts(record))
    assert len(played) == 12
    assert any(event.ok for rollout in played for event in rollout.tool_events)


def test_the_log_probs_of_generation_are_those_of_the_loss(taught, opened, tmp_path):
    case, encode, student = taught
    rollouts = opened(SumEnv, [case.row])
    trainer = trainer_of(rollouts, encode, tmp_path, student=student, temperature=0.7, top_p=0.9)
    chat = rollouts._chat_of(trainer)
    prompts = [chat.prompt([{"role": "user", "content": text}]) for text in ("2 + 2?", "What is it, then?")]
    asks = [Ask(prompt, Sampling(max_tokens=most), "") for prompt, most in zip(prompts, (12, 7), strict=True)]
    for ask, drawn in zip(asks, generate_with(trainer, chat)(asks), strict=True):
        assert len(drawn.ids) <= ask.sampling.max_tokens
        whole = torch.tensor([[*ask.prompt, *drawn.ids]])
        with torch.no_grad():
            logits = student(input_ids=whole).logits[0, len(ask.prompt) - 1 : -1] / 0.7
        expected_logprobs = logits.log_softmax(-1).gather(-1, torch.tensor(drawn.ids)[:, None])[:, 0]
        assert drawn.logprobs == pytest.approx(expected_logprobs.tolist(), abs=1e-4)


def test_an_engine_that_dies_costs_no_group_and_no_step(opened, tmp_path):
    case = CASES[1]
    asked = 0

    async def sample(ask: Ask) -> Drawn:
        nonlocal asked
        asked += 1
        if asked % 4 == 1:
            raise ConnectionError("engine gone")
        ids = [64 + asked % 4, rollouts._chat[1].stop_ids[0]]
        return Drawn(ids, [-1.0, -1.0])

    rollouts = opened(case.env, [case.row], sample=sample)
    trainer = trainer_of(rollouts, tokenizer(case.template), tmp_path)
    trainer.train()
    (*_, last) = (entry for entry in trainer.state.log_history if "loss" in entry)
    assert last["benchmax/ended/model_error"] == 0.25
    assert last["benchmax/scored"] == 0.75
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())


def test_an_outage_without_end_is_raised(opened, tmp_path):
    async def sample(ask: Ask) -> Drawn:
        raise ConnectionError("engine gone")

    rollouts = opened(SumEnv, [{"prompt": "2 + 2?", "ground_truth": "4"}], sample=sample)
    trainer = trainer_of(rollouts, tokenizer(CHATML), tmp_path, max_steps=20)
    with pytest.raises(RolloutError, match=r"last 8 batches had no rollout with a reward.*engine gone"):
        trainer.train()
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())


def test_a_prompt_that_nobody_knows_is_named(opened, tmp_path):
    rollouts = opened(SumEnv, [{"prompt": "2 + 2?", "ground_truth": "4"}])
    trainer = trainer_of(rollouts, tokenizer(CHATML), tmp_path)
    with pytest.raises(DatasetError, match="no example has it"):
        rollouts([[{"role": "user", "content": "Who are you?"}]], trainer)
