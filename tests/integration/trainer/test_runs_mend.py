"""Runs poisoned on purpose mend themselves, or end with the right diagnosis; never a silent flat line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.errors import RewardError
from benchmax.files.jsonl import read_jsonl
from benchmax.trainer.checkpoint import find_checkpoint
from benchmax.trainer.config import build_config
from benchmax.trainer.rundir import read_metrics, read_status
from benchmax.trainer.sampling import collector
from benchmax.trainer.start import resume, train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny


class DigitsEnv(BaseEnv):
    """The more digits the better: a tiny model learns it in a few steps."""

    system_prompt = "Digits."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


class FlippingEnv(DigitsEnv):
    """After so many scores, right is wrong."""

    scores = 0
    flips_after = 10**9

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        type(self).scores += 1
        good = (await super().compute_reward(rollout_id, messages, task))["digits"]
        return {"digits": good if type(self).scores <= type(self).flips_after else 1.0 - good}


class DownEnv(DigitsEnv):
    """Its judge is down for a while."""

    scores = 0
    down = (10**9, 10**9)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        type(self).scores += 1
        if type(self).down[0] < type(self).scores <= type(self).down[1]:
            raise ConnectionError("the judge is down")
        return await super().compute_reward(rollout_id, messages, task)


def row(text):
    return {"id": text, "prompt_messages": [{"role": "user", "content": text}], "task": {}}


def task(env):
    return Task(env, [row(f"{at}?") for at in range(24)], [row(f"h{at}?") for at in range(8)])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2, context=128)


def settings(model, folder, **tree):
    base = {
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "optim": {"lr": 3e-3},
        "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "max_turns": 1},
        "eval": {"every": 5, "stop_solved": False},
        "warm_start": "off",
        "limits": {"steps": 30},
        "output": {"dir": str(folder), "name": "run"},
    }
    for section, values in tree.items():
        base[section] = {**base.get(section, {}), **values} if isinstance(values, dict) else values
    return build_config(base)


def events(path: Path, kind: str) -> list[dict]:
    return [line for line in read_jsonl(path / "events.jsonl") if line["kind"] == kind]


def rewards(path: Path, split: str = "eval") -> list[float]:
    return [line["values"]["reward/mean"] for line in read_metrics(path) if line["split"] == split]


def test_a_learning_rate_thirty_times_too_high_is_brought_down(model, tmp_path):
    tree = settings(model, tmp_path, optim={"lr": 30 * 3e-3})
    done = asyncio.run(train(tree, task=task(DigitsEnv)))
    lines = [line["values"] for line in read_metrics(done.path) if line["split"] == "train"]
    assert min(line["lr"] for line in lines if "lr" in line) < 0.5 * 30 * 3e-3, "updates that went too far lowered it"
    assert done.best > done.first_eval["reward/mean"] + 0.2
    assert done.reason in ("steps", "collapsed")
    if done.reason == "collapsed":
        assert "best checkpoint" in done.message


def test_an_update_that_goes_too_far_is_pulled_back(model, tmp_path):
    far, near = (
        asyncio.run(
            train(
                settings(
                    model,
                    tmp_path / str(region),
                    optim={"lr": 0.1, "trust_region": region},
                    limits={"steps": 1},
                    output={"dir": str(tmp_path / str(region))},
                ),
                task=task(DigitsEnv),
            )
        )
        for region in (0.0, 0.5)
    )
    (held,) = [line["values"] for line in read_metrics(near.path) if line["split"] == "train"]
    assert held["moved"] <= 0.5
    weights = [find_checkpoint(done.path / "checkpoints").weights() for done in (far, near)]
    name = next(iter(weights[0]))
    base = weights_of(model)[name]
    went = [torch.linalg.vector_norm(each[name] - base).item() for each in weights]
    assert went[1] < 0.6 * went[0]


def weights_of(model):
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(model).named_parameters())


def test_a_reward_that_flips_is_found_out(model, tmp_path):
    FlippingEnv.scores, FlippingEnv.flips_after = 0, 600
    with pytest.raises(RewardError, match=r"The reward has changed: the weights of step \d+ earn .* where they earned"):
        asyncio.run(train(settings(model, tmp_path, limits={"steps": 60}), task=task(FlippingEnv)))
    path = tmp_path / "run"
    (mended,) = events(path, "mended")
    assert "Back to the checkpoint of step" in mended["message"]
    assert read_status(path)["state"] == "failed"
    assert "reward has changed" in read_status(path)["message"]


def test_a_judge_that_is_down_for_ten_steps_costs_no_step(model, tmp_path, monkeypatch):
    monkeypatch.setattr(collector, "OUTAGE_SECONDS", (0.0, 0.0))
    a_step = 6 * 4  # four groups, and two in place of those without signal
    DownEnv.scores, DownEnv.down = 0, (200, 200 + 10 * a_step)
    done = asyncio.run(train(settings(model, tmp_path, limits={"steps": 16}, eval={"every": 0}), task=task(DownEnv)))
    outages = events(done.path, "outage")
    assert len(outages) >= 5
    assert "ConnectionError: the judge is down" in outages[0]["message"]
    steps = [line["step"] for line in read_metrics(done.path) if line["split"] == "train"]
    assert steps == list(range(16))
    assert done.reason == "steps"


def test_a_judge_that_stays_down_ends_the_run_with_its_words_and_the_run_can_go_on(model, tmp_path, monkeypatch):
    monkeypatch.setattr(collector, "OUTAGE_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(collector, "OUTAGE_TRIES", 4)
    DownEnv.scores, DownEnv.down = 0, (100, 10**9)
    tree = settings(model, tmp_path, limits={"steps": 16}, eval={"every": 0}, checkpoint={"every": 1})
    with pytest.raises(RewardError, match=r"Rewards have failed since step \d+: 4 tries.*the judge is down.*resume"):
        asyncio.run(train(tree, task=task(DownEnv)))
    done_before = len(rewards(tmp_path / "run", "train"))
    assert 0 < done_before < 16
    DownEnv.down = (10**9, 10**9)
    done = asyncio.run(resume(tmp_path / "run", task=task(DownEnv)))
    assert len(rewards(done.path, "train")) == 16


def test_a_run_that_collapses_again_and_again_ends_with_the_diagnosis(model, tmp_path, monkeypatch):
    """Weights that are broken after every update, whatever the learning rate."""
    from benchmax.trainer.learning.learner import Learner

    learn = Learner.learn

    def spoil(self, groups, *arguments, step=0, **options):
        found = learn(self, groups, *arguments, step=step, **options)
        if step >= 15:
            for weight in self.policy.parameters().values():
                weight.data.mul_(0.0)
        return found

    monkeypatch.setattr(Learner, "learn", spoil)
    seen = []
    tree = settings(model, tmp_path, limits={"steps": 80}, watch={"mends": 2}, optim={"lr": 1e-2})
    done = asyncio.run(train(tree, task=task(DigitsEnv), on_event=lambda kind, data: seen.append((kind, data))))
    mended = events(done.path, "mended")
    assert [event["mends"] for event in mended] == [1, 2]
    assert done.reason == "collapsed"
    assert "It went back 2 times, and that did not help" in done.message
    assert f"step-{done.best_step}" in done.message
    assert read_status(done.path)["message"] == done.message
    assert (done.path / "checkpoints" / "best").exists()
    assert done.step < 80


@pytest.mark.parametrize("given", [{"watch": {"mends": 0}}, pytest.param({"recipe": "plain"}, marks=pytest.mark.slow)])
def test_mending_can_be_turned_off(model, tmp_path, monkeypatch, given):
    FlippingEnv.scores, FlippingEnv.flips_after = 0, 300
    done = asyncio.run(train(settings(model, tmp_path, limits={"steps": 20}, **given), task=task(FlippingEnv)))
    assert events(done.path, "mended") == []
    assert done.reason == "steps"


def test_chance_is_no_collapse(model, tmp_path):
    """Prompts that differ in difficulty make the mean of a small step jump; held-out rows stay where they are."""

    class Uneven(DigitsEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            good, asked = (await super().compute_reward(rollout_id, messages, task))["digits"], messages[1]["content"]
            return {"digits": 0.5 + 0.1 * good if asked[0] == "h" else good if asked[0] in "01" else 0.1 * good}

    tree = settings(model, tmp_path, rollouts={"prompts_per_step": 2}, limits={"steps": 25})
    done = asyncio.run(train(tree, task=task(Uneven)))
    assert events(done.path, "mended") == []
