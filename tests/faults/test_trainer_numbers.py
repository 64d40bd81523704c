"""Numbers that are none, and memory that runs out, in the middle of a run (F15); a long run stays as it is (L13)."""

from __future__ import annotations

import math
import statistics
import time

import psutil
import pytest
import torch

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.trainer.checkpoint import find_checkpoint
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.start import Task, train
from benchmax.trainer.tiny_model import make_tiny
from training_world import config, go

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
BIG = {"hidden": 1024, "layers": 40, "context": 512}
"""Half a billion weights."""


class DigitsEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


def examples(count):
    return [make_example([{"role": "user", "content": f"{number}?"}], {"n": number}) for number in range(count)]


TASK = Task(DigitsEnv, examples(16), examples(24)[16:])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


def weights_of(run):
    return find_checkpoint(run / "checkpoints").weights()


POISONS = [(where, poison) for where in ("loss", "gradient") for poison in (math.nan, math.inf, -math.inf)]
QUICK = [("loss", math.inf), ("gradient", -math.inf)]


@pytest.mark.parametrize(
    ("where", "poison"), [pytest.param(*each, marks=[] if each in QUICK else pytest.mark.slow) for each in POISONS]
)
def test_a_number_that_is_none_costs_its_update_and_nothing_else(model, tmp_path, monkeypatch, poison, where):
    backward, updates = Learner._backward, []

    def poisoned(learner, *rest):
        loss, packed = backward(learner, *rest)
        updates.append(1)
        if len(updates) != 3:
            return loss, packed
        if where == "loss":
            return poison, packed
        for weight in learner.policy.parameters().values():
            weight.grad.view(-1)[0] = poison
        return loss, packed

    monkeypatch.setattr(Learner, "_backward", poisoned)
    done = go(train(config(model, tmp_path, limits={"steps": 6}, checkpoint={"every": 1, "keep_last": 9}), task=TASK))
    assert (done.reason, done.step) == ("steps", 6)
    lines = [line for line in read_metrics(done.path) if line["split"] == "train"]
    assert [line["step"] for line in lines] == list(range(6))
    assert sum(line["values"].get("skipped_updates", 0.0) for line in lines) == 1
    assert all(math.isfinite(value) for line in lines for value in line["values"].values())
    folders = sorted((done.path / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    assert len(folders) == 7
    kept = [find_checkpoint(done.path / "checkpoints", folder.name).weights() for folder in folders]
    assert all(bool(torch.isfinite(tensor).all()) for weights in kept for tensor in weights.values())
    bad = next(at for at, line in enumerate(lines) if line["values"].get("skipped_updates"))
    same = [all(torch.equal(kept[at][name], kept[at + 1][name]) for name in kept[at]) for at in range(6)]
    assert same[bad], "the update was not made"
    assert not same[bad + 1] or not lines[bad + 1]["values"].get("groups/used"), "the next one was"


def steady(run, steps, tolerance):
    """Step times of the second and of the last fifth, and how far apart they are."""
    lines = [line["values"] for line in read_metrics(run) if line["split"] == "train"]
    times = [each["seconds/sample"] + each["seconds/update"] for each in lines]
    fifth = steps // 5
    early, late = (statistics.median(part) for part in (times[fifth : 2 * fifth], times[-fifth:]))
    return early, late, abs(late - early) <= tolerance * early


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_long_run_does_not_grow(model, tmp_path, capsys):
    """L13 in small, on the CPU: memory counts, time is the machine's."""
    seen = []

    def watch(kind, data):
        if kind == "metrics" and data["split"] == "train":
            seen.append(psutil.Process().memory_info().rss)

    began = time.monotonic()
    tree = {"limits": {"steps": 400}, "eval": {"every": 100}, "checkpoint": {"every": 100}}
    go(train(config(model, tmp_path, **tree), task=TASK, on_event=watch))
    early, late = max(seen[80:160]), max(seen[-80:])
    with capsys.disabled():
        print(f"\n400 steps in {time.monotonic() - began:.0f} s: {early / 1e6:.0f} MB, then {late / 1e6:.0f} MB")
    assert late <= 1.02 * early + 2e6


@pytest.mark.gpu
@cuda
def test_half_a_billion_weights_for_two_hundred_steps(tmp_path, capsys):
    """L13: steps take as long in the end as in the beginning, and the GPU's memory does not grow."""
    big = make_tiny(tmp_path / "big", **BIG)
    seen = []

    def watch(kind, data):
        if kind == "metrics" and data["split"] == "train":
            seen.append(torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

    rollouts = {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64, "max_turns": 1}
    tree = {
        "model": {"name": str(big), "tune": "full", "device": "cuda"}, "optim": {"lr": 1e-6}, "rollouts": rollouts,
        "eval": {"every": 1000}, "checkpoint": {"every": 1000}, "limits": {"steps": 200},
    }  # fmt: skip
    done = go(train(config(big, tmp_path, **tree), task=TASK, on_event=watch))
    early, late, is_steady = steady(done.path, 200, 0.10)
    before, after = max(seen[40:80]), max(seen[-40:])
    count = sum(tensor.numel() for tensor in weights_of(done.path).values())
    with capsys.disabled():
        print(
            f"\n{count / 1e6:.0f} M weights, 200 steps: {early * 1000:.0f} ms a step, then {late * 1000:.0f} ms; "
            f"{before / 1e9:.2f} GB, then {after / 1e9:.2f} GB"
        )
    assert is_steady
    assert after <= 1.02 * before


@pytest.mark.gpu
@cuda
def test_real_memory_that_runs_out_makes_smaller_batches(tmp_path):
    """F15 on a GPU: a ballast leaves no room for the batch that was planned."""
    middle = make_tiny(tmp_path / "middle", hidden=256, layers=4, context=512)
    backward, ballast, budgets = Learner._backward, [], []

    def crowded(learner, *rest):
        budgets.append(learner.token_budget)
        if not ballast:
            free, _ = torch.cuda.mem_get_info()
            ballast.append(torch.empty(max(0, free - 150_000_000), dtype=torch.uint8, device="cuda"))
        return backward(learner, *rest)

    rollouts = {"prompts_per_step": 16, "group_size": 16, "max_new_tokens": 200, "max_turns": 1}
    tree = {
        "model": {"name": str(middle), "tune": "full", "device": "cuda"}, "rollouts": rollouts,
        "optim": {"lr": 1e-4, "token_budget": 65_536}, "limits": {"steps": 2}, "eval": {"every": 1000},
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "_backward", crowded)
        done = go(train(config(middle, tmp_path, **tree), task=TASK))
    assert done.reason == "steps"
    assert min(budgets) < max(budgets), "the batch was made smaller"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights_of(done.path).values())
