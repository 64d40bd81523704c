"""Training runs that go wrong say so: in a note, an alert or one clear line, never in a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
import torch
import typer
from safetensors.torch import load_file, save_file

from benchmax.cli import main
from benchmax.cli.local import train as commands
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.errors import ModelError, RewardError, UsageError
from benchmax.inference.engine.engine import Engine
from benchmax.inference.local_model import LocalModel
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.trainer import start
from benchmax.trainer.config import build_config
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.start import train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny

torch.set_num_threads(1)  # the models are tiny


class DigitsEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        return {"digits": 0.5 + sum(letter.isdigit() for letter in text) / max(1, len(text))}


class FadingEnv(DigitsEnv):
    """Pays each held-out row once, as if the model then forgot."""

    def __init__(self):
        self.paid = set()

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        asked = messages[0]["content"]
        if asked not in ("a?", "b?"):
            return await super().compute_reward(rollout_id, messages, task, **kwargs)
        first = asked not in self.paid
        self.paid.add(asked)
        return {"digits": 0.9 * first}


class HugeEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"a": 1e300 * (1 + len(extract_completion_text(messages)) % 3)}


class LargeEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"a": 1e17 * sum(letter.isdigit() for letter in extract_completion_text(messages))}


class MissingEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"a": {}["missing"]}


def row(text):
    return make_example(prompt_messages=[{"role": "user", "content": text}])


def task(env, held_out=("a?", "b?")):
    return Task(env, [row(f"{i}?") for i in range(16)], [row(text) for text in held_out])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2, context=128)


def config(model, folder, **tree):
    base = {
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "max_turns": 1},
        "eval": {"every": 2},
        "limits": {"steps": 4},
        "output": {"dir": str(folder), "name": "run"},
    }
    return build_config({name: base.get(name, {}) | tree.get(name, {}) for name in base | tree} | {"recipe": "plain"})


def events(path, kind):
    lines = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize(
    ("lr", "notes"), [(1e6, ["optim.lr 1e+06 is very high: above 0.01 a model is soon destroyed."]), (1e-2, [])]
)
def test_a_learning_rate_that_destroys_a_model_is_noted(model, tmp_path, lr, notes):
    done = asyncio.run(train(config(model, tmp_path, optim={"lr": lr}, limits={"steps": 1}), task=task(DigitsEnv)))
    assert [event["message"] for event in events(done.path, "note")] == notes


def test_a_collapse_on_held_out_rows_alarms(model, tmp_path):
    done = asyncio.run(train(config(model, tmp_path), task=task(FadingEnv)))
    (alert,) = (event for event in events(done.path, "alert") if event["alert"] == "held_out_collapse")
    assert alert["step"] == 1, "the evaluation after two steps"
    assert alert["evidence"] == {"best": 0.9, "now": 0.0}
    assert len(alert["rollouts"]) == 2


def test_large_rewards_train_and_huge_ones_are_left_out_with_the_reason(model, tmp_path):
    rule = {"advantage": "mean"}
    tree = config(model, tmp_path / "large", algorithm=rule, limits={"steps": 3}, optim={"lr": 1e-3})
    done = asyncio.run(train(tree, task=task(LargeEnv)))
    lines = [line["values"] for line in read_metrics(done.path) if line["split"] == "train"]
    assert all(line["skipped_updates"] == 0 for line in lines if line["groups/used"])
    assert done.learned
    with pytest.raises(RewardError, match=r"Reward 'a' is \de\+300, beyond 1e\+18; keep rewards small"):
        asyncio.run(train(config(model, tmp_path / "huge"), task=task(HugeEnv)))


def test_the_reason_of_a_failed_run_names_the_exception(model, tmp_path):
    with pytest.raises(RewardError, match="The most common reason: KeyError: 'missing'"):
        asyncio.run(train(config(model, tmp_path), task=task(MissingEnv)))


def test_held_out_prompts_that_never_fit_leave_the_mean_and_are_counted(model, tmp_path):
    tree = config(model, tmp_path, limits={"steps": 1})
    done = asyncio.run(train(tree, task=task(DigitsEnv, ("a?", "b?", "long" * 100, "longer" * 100))))
    assert done.first_eval["unscored"] == 0.5
    assert done.first_eval["reward/min"] >= 0.5, "what was never played earned nothing, not 0"
    assert done.first_eval["reward/mean"] >= 0.5


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"eval": {"target": 0.2}}, "The held-out reward had reached eval.target before the first step"),
        ({"limits": {"seconds": 1e-6}}, "limits.seconds was over before the first step"),
    ],
)
def test_a_run_that_ends_before_its_first_step_says_why(model, tmp_path, section, said, capsys, monkeypatch):
    monkeypatch.setattr("benchmax.trainer.task.load_task", lambda settings: task(DigitsEnv))
    commands._run(config(model, tmp_path, **section))
    told = " ".join(capsys.readouterr().err.split())
    assert f"{said}, so nothing was trained." in told
    assert "No step taught the model anything" not in told


@pytest.fixture(scope="module")
def broken(model, tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("broken"), hidden=32, layers=2)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("save_tokens", [False, True])
def test_a_model_whose_weights_are_not_finite_is_not_trained(broken, tmp_path, save_tokens):
    with pytest.raises(UsageError, match=r"not finite numbers as float32.*Pull or copy the model again"):
        asyncio.run(train(config(broken, tmp_path, output={"save_tokens": save_tokens}), task=task(DigitsEnv)))
    assert not (tmp_path / "run").exists(), "it never began"


def test_a_model_whose_weights_are_not_finite_is_not_measured(broken, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["benchmax", "eval", "arithmetic", "-m", str(broken), "-n", "2"])
    with pytest.raises((SystemExit, typer.Exit)) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert "are not finite numbers" in told.err
    assert "Traceback" not in told.err + told.out


async def test_weights_that_break_later_fail_the_turn_with_the_reason(model):
    engine = Engine.from_directory(model, device="cpu")
    async with LocalModel(engine, ChatTokens(model), name="tiny") as local:
        engine.update_weights({"model.norm.weight": torch.full((32,), float("nan"))})
        with pytest.raises(ModelError, match=r"The logits of tiny are not finite numbers.*earlier checkpoint"):
            await local.converse().reply([{"role": "user", "content": "2+2?"}])


def test_ctrl_c_while_the_model_loads_ends_at_once(model, tmp_path, monkeypatch):
    def load_learner(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("it went on loading")

    monkeypatch.setattr(start, "load_learner", load_learner)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["benchmax", "train", "arithmetic", "--model", str(model), "--output.name", "a"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert not (tmp_path / "runs" / "a").exists(), "it never began"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
