"""A toy model on five environments at once: five curves, warm start where a part needs it, resume, commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmax import metrics
from benchmax.cli.app import app
from benchmax.envs.loading import load_env_class
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer.display.plot import plot_run
from benchmax.trainer.display.view import describe
from benchmax.trainer.rundir import read_config, read_metrics
from benchmax.trainer.start import resume, train
from benchmax.trainer.tiny_model import make_tiny
from training_world import config, go

torch.set_num_threads(1)  # the models are tiny

ENVS = '''
from benchmax import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text

class Share(BaseEnv):
    """Pays for the share of letters of one kind."""
    kind = "isdigit"
    PRIMARY_REWARD_KEY = "share"

    @classmethod
    def load_dataset(cls, dataset_name="", **kwargs):
        return [{"prompt": f"{number}?"} for number in range(20)], None

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        return {"share": sum(getattr(letter, self.kind)() for letter in text) / max(1, len(text))}

class Digits(Share): pass
class Letters(Share): kind = "isalpha"
class Small(Share): kind = "islower"
class Large(Share): kind = "isupper"
class Signs(Share): kind = "isprintable"

class Even(Share):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"share": 1.0 - len(extract_completion_text(messages)) % 2}

class Secret(Share):
    """Pays for one text alone, which a model does not find by itself."""
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"share": float(extract_completion_text(messages).strip() == "ok")}

    def demonstrate(self, example):
        return "ok"
'''
FIVE = ("Digits", "Letters", "Small", "Large", "Signs")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("envs") / "several.py"
    path.write_text(ENVS)
    return path


def test_five_parts_have_five_curves_and_a_run_goes_on(model: Path, file: Path, tmp_path: Path) -> None:
    env = [f"{file}:{name}" for name in FIVE]
    rollouts = {"prompts_per_step": 5}
    settings = config(model, tmp_path, data={"env": env}, rollouts=rollouts, limits={"steps": 4})
    done = go(train(settings))
    lines = read_metrics(done.path)
    for split, count in (("train", 4), ("eval", 2)):
        own = [line["values"] for line in lines if line["split"] == split]
        assert len(own) == count
        for values in own:
            counts = [values[metrics.of_part(part, metrics.ROLLOUTS)] for part in FIVE]
            means = [values[metrics.of_part(part, metrics.REWARD)] for part in FIVE]
            earned = sum(count * mean for count, mean in zip(counts, means, strict=True))
            assert values[metrics.REWARD] == pytest.approx(earned / sum(counts))
            assert min(counts) >= 4
            assert all(metrics.component(f"{part}/share") in values for part in FIVE)
    played = list(read_rollouts(done.path / "rollouts" / "eval-4.jsonl"))
    assert {rollout.env for rollout in played} == set(FIVE)
    assert read_config(done.path).data.env == ",".join(f"{each}=1" for each in env)
    line = describe("metrics", lines[-1], 4) or ""
    assert all(f"{part} 0." in line or f"{part} 1." in line for part in FIVE)
    picture = plot_run(done.path, tmp_path / "curves.svg").read_text()
    assert all(part in picture for part in FIVE)
    again = go(resume(done.path, changes={"limits": {"steps": 6}}))
    assert again.step == 6
    assert metrics.of_part("Signs", metrics.REWARD) in again.last_eval


def test_a_part_without_signal_is_shown_its_solutions(model: Path, file: Path, tmp_path: Path) -> None:
    data = {"env": {f"{file}:Even": 1, f"{file}:Secret": 1}}
    more = {"limits": {"steps": 1}, "sft": {"doses": 2}, "eval": {"every": 1}}
    rollouts = {"group_size": 16}  # among so many some are even and some are not
    settings = config(model, tmp_path, data=data, recipe="auto", rollouts=rollouts, **more)
    done = go(train(settings))
    events = [json.loads(line) for line in (done.path / "events.jsonl").read_text().splitlines()]
    (signal,) = (each for each in events if each["kind"] == "signal")
    assert signal["parts"]["Even"]["ready"]
    assert not signal["parts"]["Secret"]["ready"]
    (warm,) = (each for each in events if each["kind"] == "warm_start")
    assert (warm["how"], warm["sources"]) == ("gold", {"demonstrate": warm["rows"]})
    shown = list(read_rollouts(done.path / "rollouts" / "warm_start-0.jsonl"))
    assert {rollout.env for rollout in shown} == {"Secret"}


def test_the_commands_take_several(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    named = f"{file}:Digits=2,{file}:Signs"
    done = run.invoke(app, ["eval", named, "--model", "scripted:12", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["report"]
    assert {name: part["examples"] for name, part in report["parts"].items()} == {"Digits": 20, "Signs": 10}
    assert [name for name in (tmp_path / "runs").iterdir() if "Digits-Signs" in name.name]
    shown = run.invoke(app, ["env", "show", named, "--json"])
    assert json.loads(shown.stdout)["parts"] == {"Digits": [], "Signs": []}
    played = run.invoke(app, ["env", "run", "arithmetic,calculator", "-n", "2", "--json"])
    assert [rollout["env"] for rollout in json.loads(played.stdout)] == ["arithmetic", "calculator"]
    checked = run.invoke(app, ["validate", "arithmetic,calculator", "--examples", "2", "--json"])
    assert checked.exit_code == 0, checked.output
    assert load_env_class(named).composed_of.keys() == {"Digits", "Signs"}
