"""`benchmax eval --model RUN`: the model a training run made, without an export, by folder, name or id."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmax.cli.local.evals import evaluate_command
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.errors import NotFoundError, RecordError
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer.config import build_config
from benchmax.trainer.export import export_adapter, export_merged
from benchmax.trainer.open_checkpoint import find_run, pin_checkpoint
from benchmax.trainer.start import train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny

app = typer.Typer()
app.command()(evaluate_command)

ENV = """
from benchmax.envs.base_env import BaseEnv

class Digits(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = messages[-1]["content"]
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}
"""
GREEDY = ("--temperature", "0", "--max-tokens", "6", "--max-turns", "1")


class DigitsEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = messages[-1]["content"]
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


def trained(folder, tune):
    """A run of a few steps, `runs/digits` in the folder, and its model."""
    examples = [make_example(prompt_messages=[{"role": "user", "content": f"{i}?"}]) for i in range(24)]
    tree = {
        "model": {"name": str(make_tiny(folder / "model", hidden=32, layers=1)), "tune": tune, "device": "cpu"},
        "optim": {"lr": 5e-2},  # so high that it answers otherwise than before, whatever it was that it sampled
        "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "max_turns": 1},
        "eval": {"every": 4}, "checkpoint": {"every": 2}, "limits": {"steps": 4},
        "output": {"dir": str(folder / "runs"), "name": "digits"},
    }  # fmt: skip
    asyncio.run(train(build_config(tree), task=Task(DigitsEnv, examples[:16], examples[16:])))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run of a few steps under runs/, with an environment and rows beside it."""
    folder = tmp_path_factory.mktemp("world")
    trained(folder, "lora")
    (folder / "env.py").write_text(ENV)
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"{n}?"}) + "\n" for n in range(6)))
    return folder


@pytest.fixture(autouse=True)
def here(world, monkeypatch, tmp_path):
    monkeypatch.chdir(world)
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path / "data"))


def evaluated(out, *more):
    """What each example was answered."""
    words = ["env.py", "--data", "rows.jsonl", "--out", str(out), *GREEDY, *more]
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return answers(out)


def answers(out):
    rollouts = list(read_rollouts(out / "rollouts.jsonl"))
    assert len({each.example_id for each in rollouts}) == 6
    return {each.example_id: each.messages[-1]["content"] for each in rollouts}


def test_a_run_plays_as_its_exports_and_by_its_name_and_its_id(world, tmp_path):
    run = world / "runs" / "digits"
    merged = export_merged(run, tmp_path / "merged", which="step-4")
    adapter = export_adapter(run, tmp_path / "adapter", which="step-4")
    shutil.copytree(run, tmp_path / "data" / "runs" / "run_abc")
    assert find_run("run_abc") == tmp_path / "data" / "runs" / "run_abc"
    played = evaluated(tmp_path / "a", "--model", "runs/digits:step-4")
    same = {"merged": str(merged), "adapter": f"{world / 'model'}:{adapter}", "id": "run_abc:step-4"}
    for name, model in same.items():
        assert evaluated(tmp_path / name, "--model", model) == played, name
    assert evaluated(tmp_path / "base", "--model", str(world / "model")) != played, "the base model is another"


def test_a_run_of_all_weights_plays_as_its_export_and_on_its_own_model_alone(world, tmp_path):
    trained(tmp_path, "full")
    run = str(tmp_path / "runs" / "digits")
    merged = export_merged(Path(run), tmp_path / "merged", which="step-4")
    assert evaluated(tmp_path / "a", "--model", f"{run}:step-4") == evaluated(tmp_path / "b", "--model", str(merged))
    shutil.rmtree(tmp_path / "model")
    make_tiny(tmp_path / "model", hidden=32, layers=2)
    with pytest.raises(RecordError, match="not those of this model"):
        evaluated(tmp_path / "c", "--model", f"{run}:step-4")


def test_the_checkpoint_is_written_down_so_that_a_resumed_evaluation_asks_the_same_one(world, tmp_path, monkeypatch):
    evaluated(tmp_path / "out", "--model", "digits:latest")
    kept = json.loads((tmp_path / "out" / "eval.json").read_text())
    assert kept["model"] == f"{world / 'runs' / 'digits'}:step-4"
    lines = (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines(keepends=True)
    before = answers(tmp_path / "out")
    (tmp_path / "out" / "rollouts.jsonl").write_text("".join(lines[:4]))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["--resume", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert answers(tmp_path / "out") == before


def test_what_is_not_there_is_said_and_a_model_stays_a_model(world):
    with pytest.raises(NotFoundError, match=r"no checkpoint step-999.*there are: .*step-4"):
        pin_checkpoint("digits:step-999")
    (world / "runs" / "smollm2-135m").mkdir()
    (world / "runs" / "smollm2-135m" / "metrics.jsonl").touch()
    assert pin_checkpoint("smollm2-135m") == "smollm2-135m"
    assert pin_checkpoint("org/name") == "org/name"
    assert find_run("no-such-run") is None
