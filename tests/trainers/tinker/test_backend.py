"""`--backend tinker` against a server that speaks Tinker's protocol, through the real `tinker` package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tinker_server import TinkerServer
from tinker_world import SmallLetters, rewards, task

from benchmax import metrics
from benchmax.adapters.engine_model import EngineModel
from benchmax.adapters.tinker.learner import datum, size_of
from benchmax.adapters.tinker.remote import RemoteModel
from benchmax.adapters.tinker.sampler import TinkerSampler
from benchmax.errors import ConfigError, UsageError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Sampling
from benchmax.rollouts import EnvHost, RolloutSettings, run_group
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer.config import build_config
from benchmax.trainer.learning.advantage import AdvantageRule, assign_advantages
from benchmax.trainer.learning.batch import sequence_of
from benchmax.trainer.open_checkpoint import open_checkpoint
from benchmax.trainer.rundir import read_metrics, read_status
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.start import resume, train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny
from trainer_failures import COUNT, GROUP, LONG, ROUGH, Actor, RoughEnv, ended
from trainer_world import CASES, Script, expected, tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny", hidden=32, layers=1)


@pytest.fixture
def server(tiny, monkeypatch):
    made = TinkerServer(tiny)
    monkeypatch.setenv("TINKER_BASE_URL", made.url)
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    yield made
    made.close()


def settings(server, folder, **changes):
    tree = {
        "backend": "tinker",
        "model": {"name": str(server.directory)},
        "rollouts": {"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 3},
        "algorithm": {"cut_off": "keep", "guidance": "off"},
        "optim": {"lr": 3e-2, "warmup_steps": 0, "schedule": "constant"},
        "eval": {"every": 0, "temperature": 1.0, "samples": 8},
        "checkpoint": {"every": 3},
        "limits": {"steps": 10},
        "output": {"dir": str(folder), "name": "run"},
    }
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values} if isinstance(values, dict) else values
    return build_config(tree)


async def test_a_model_learns_and_its_run_is_like_any_other(server, tmp_path):
    seen = []
    outcome = await train(settings(server, tmp_path), task=task(), on_event=lambda kind, data: seen.append(kind))
    first, last = rewards(outcome.path, "eval")
    assert first < 0.5 < 0.9 < last
    assert outcome.reason == "steps"
    assert read_status(outcome.path)["state"] == "complete"
    lines = [line["values"] for line in read_metrics(outcome.path) if line["split"] == "train"]
    assert len(lines) == 10
    wanted = {metrics.LOSS, metrics.ENTROPY, metrics.DRIFT, metrics.RATIO, metrics.CLIP_FRACTION, metrics.LEARNING_RATE}
    assert wanted <= set(lines[0])
    assert lines[0][metrics.DRIFT] < 1e-4  # what is trained is what was sampled
    assert lines[-1][metrics.ENTROPY] < lines[0][metrics.ENTROPY]
    assert {"begins", "started", "group", "metrics", "checkpoint", "summary", "ended"} <= set(seen)
    assert len(list((outcome.path / "rollouts").glob("train-*.jsonl"))) == 10
    with pytest.raises(UsageError, match="tinker://run/weights/"):
        open_checkpoint(outcome.path)


async def test_a_run_resumes_from_what_the_server_keeps(server, tmp_path):
    whole = await train(settings(server, tmp_path / "whole", limits={"steps": 4}), task=task())
    half = await train(settings(server, tmp_path / "half", limits={"steps": 2}), task=task())
    await resume(half.path, task=task(), changes={"limits": {"steps": 4}})
    state = json.loads((half.path / "checkpoints" / "step-4" / "state.json").read_text())
    assert state["learner"]["weights_at"] in server.saved
    assert rewards(half.path, "train") == pytest.approx(rewards(whole.path, "train"))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_tinker_receives_the_truth(case, server):
    """The scripted tokens through the server's own sampling, and back to it as what it is trained on."""
    server.script = Script([case]).next_turn
    remote = RemoteModel.connect(str(server.directory), rank=4, seed=0)
    remote.push()
    chat = ChatTokens.of_tokenizer(tokenizer(case.template))

    async def sample(ask):
        return await remote.sample(ask, chat.stop_ids)

    limits = RolloutSettings(max_turns=case.max_turns, sampling=Sampling(max_tokens=400, logprobs=True))
    async with EnvHost(case.env) as host:
        model = EngineModel(chat, sample, name="tinker")
        group = await run_group(host, case.example, model, limits, samples=range(len(case.samples)))
    assign_advantages(group, AdvantageRule(min_scored=0.5))
    found = []
    for rollout in group:
        sequence = sequence_of(rollout)
        given = datum(sequence, np.ones(len(sequence.targets), np.float32))
        inputs = {name: value.to_numpy() for name, value in given.loss_fn_inputs.items()}
        found.append((given.model_input.to_ints(), inputs, rollout))
    found.sort(key=lambda each: each[1]["target_tokens"].tolist())
    truths = sorted(expected(case), key=lambda truth: truth.prompt_ids[1:] + truth.response_ids)
    for (ids, inputs, rollout), truth in zip(found, truths, strict=True):
        whole, before = truth.prompt_ids + truth.response_ids, [0.0] * (len(truth.prompt_ids) - 1)
        assert ids == whole[:-1]
        assert inputs["target_tokens"].tolist() == whole[1:]
        assert inputs["logprobs"].tolist() == pytest.approx(before + truth.logprobs, abs=1e-6)
        sampled = [0] * len(truth.response_ids)
        for start, end in truth.steps:
            sampled[start:end] = [1] * (end - start)
        worth = before + [truth.advantage * each for each in sampled]
        assert inputs["advantages"].tolist() == pytest.approx(worth, abs=1e-5)
        assert [rollout.reward, rollout.termination] == [truth.reward, truth.ends]
    remote.close()


async def test_demonstrations_are_learned_by_cross_entropy(server, tmp_path):
    class Told(SmallLetters):
        @classmethod
        def gold_completion(cls, task, **kwargs):
            return "abc"

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"exact": float(messages[-1]["content"] == "abc")}

    config = settings(server, tmp_path, limits={"steps": 1}, algorithm={"guidance": "auto"}, eval={"rows": 1})
    rows = task()
    await train(config, task=Task(Told, rows.train, rows.held_out))
    assert [each["reason"]["type"] for each in server.finished] == ["success"]
    losses = {loss: data for loss, data, _ in server.received}
    assert list(losses) == ["cross_entropy"]
    _, inputs = losses["cross_entropy"][0]
    assert np.count_nonzero(inputs["weights"]) == 4  # three letters and the end of the turn
    assert sum(given["weights"].sum() for _, given in losses["cross_entropy"]) == pytest.approx(1.0)


async def test_a_sample_that_the_server_refuses_costs_one_rollout(server, tmp_path):
    server.failing = 1
    outcome = await train(settings(server, tmp_path, limits={"steps": 1}, eval={"rows": 1, "samples": 4}), task=task())
    line = next(line for line in read_metrics(outcome.path) if line["split"] == "eval")
    assert line["values"][metrics.FAILED] == pytest.approx(0.25)
    assert outcome.reason == "steps"


async def test_failures_arrive_as_our_reasons_and_no_group_is_lost(server, tmp_path):
    """Four prompts: one too long, one that cannot begin, one whose reward raises, one that is whole."""

    class Failing(SmallLetters):
        @classmethod
        def dataset_preprocess(cls, example, **kwargs):
            return {**super().dataset_preprocess(example), "init_rollout_args": {"kind": example["ground_truth"]}}

        async def init_rollout(self, rollout_id, kind="", **kwargs):
            if kind == "start":
                raise RuntimeError("no room")

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            if task["ground_truth"] == "reward":
                raise RuntimeError("the judge is out")
            return await super().compute_reward(rollout_id, messages, task, **kwargs)

    rows = [("x" * 600, "long"), ("say 1", "start"), ("say 2", "reward"), ("say 3", "whole")]
    examples = [Failing.dataset_preprocess({"prompt": prompt, "ground_truth": kind}) for prompt, kind in rows]
    config = settings(server, tmp_path, limits={"steps": 1}, rollouts={"max_extra_groups": 0}, eval={"every": 0})
    outcome = await train(config, task=Task(Failing, examples, []))
    found: dict[str, list[tuple[str, bool]]] = {}
    for rollout in read_rollouts(outcome.path / "rollouts" / "train-0.jsonl"):
        found.setdefault(rollout.task["ground_truth"], []).append((rollout.termination.value, rollout.reward is None))
    assert {kind: set(ends) for kind, ends in found.items()} == {
        "long": {("context_exceeded", True)}, "start": {("env_error", True)},
        "reward": {("output_exceeded", True)}, "whole": {("output_exceeded", False)},
    }  # fmt: skip
    assert [len(ends) for ends in found.values()] == [8] * 4
    ((_, data, _),) = server.received
    assert len(data) == 8  # the whole group is learned from, and nothing else


async def test_a_group_in_which_everything_happens_comes_back_whole(server, tmp_path):
    RoughEnv.start_anew()
    server.script = Actor(ROUGH.template).next_turn
    remote = RemoteModel.connect(str(server.directory), rank=4, seed=0)
    remote.push()
    chat, seen = ChatTokens.of_tokenizer(tokenizer(ROUGH.template)), []
    async with EnvHost(RoughEnv) as host:
        sampler = TinkerSampler(
            host, remote, chat, settings(server, tmp_path, rollouts={"max_new_tokens": 400}), context=LONG
        )
        (group,) = await sampler.sample([ROUGH.example], Draw("train", 0, COUNT, 1.0), seen.append)
    remote.close()
    assert ended(group) == GROUP
    assert seen == [group]
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)
    assign_advantages(group, AdvantageRule(min_scored=0.5))
    assert all(bool(rollout.advantage) == (rollout.reward is not None) for rollout in group)


async def test_a_model_that_is_not_offered_is_refused_and_leaves_no_run(server, tmp_path):
    with pytest.raises(UsageError, match=r"Qwen/Qwen9-1B.*Name a model that it offers"):
        await train(settings(server, tmp_path, model={"name": "Qwen/Qwen9-1B"}), task=task())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model": {"tune": "full"}}, "model.tune"),
        ({"algorithm": {"kl": 0.1}}, "algorithm.kl"),
        ({"rollouts": {"temperature": 0.7}}, "rollouts.temperature"),
        ({"warm_start": "gold"}, "warm_start"),
        ({"lora": {"targets": ["q_proj"]}}, "lora.targets"),
    ],
)
async def test_what_tinker_cannot_do_is_refused(server, tmp_path, changes, word):
    with pytest.raises(ConfigError, match=word):
        await train(settings(server, tmp_path, **changes), task=task())


async def test_without_a_key_one_line_says_so(server, tmp_path, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="TINKER_API_KEY"):
        await train(settings(server, tmp_path), task=task())


def test_the_size_of_a_model_is_in_its_name():
    assert size_of("Qwen/Qwen3-8B") == 8_000_000_000
    assert size_of("meta-llama/Llama-3.2-1B-Instruct") == 1_000_000_000
    assert size_of("Qwen/Qwen3-0.6B:beta") == 600_000_000
