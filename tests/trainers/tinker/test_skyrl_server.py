"""`--backend tinker` against SkyRL's own Tinker server, whose JAX engine trains on the CPU: nothing is a stand-in."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from skyrl_server import ROOT, SkyrlServer
from tinker_world import SOURCE, make_tiny_head, rewards, task

from benchmax import limits, metrics
from benchmax.adapters.tinker import server_liveness
from benchmax.errors import ModelUnavailable
from benchmax.rollouts.record import Termination
from benchmax.trainer.config import build_config
from benchmax.trainer.rundir import read_metrics, read_status
from benchmax.trainer.start import resume, train

PAGE = ROOT / "docs" / "trainers" / "tinker.md"
SMALL = {
    "rollouts": {"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 3, "max_extra_groups": 0},
    "algorithm": {"cut_off": "keep", "guidance": "off"},
    "optim": {"lr": 0.03, "warmup_steps": 0, "schedule": "constant"},
    "lora": {"rank": 16},
    "eval": {"every": 0, "temperature": 1.0, "samples": 8},
}
"""A run for a model of some thousand weights: short answers, large steps."""
LAUNCHED = {
    "prompts_per_step": 4, "group_size": 8, "max_new_tokens": 3, "max_extra_groups": 0, "recipe": "plain",
    "learning_rate": 0.03, "lora_rank": 16, "max_steps": 14, "eval_every": 0,
}  # fmt: skip
"""The same as launch arguments."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("skyrl")
    made = SkyrlServer(make_tiny_head(folder / "model"), folder / "server")
    yield made
    made.kill()


@pytest.fixture(autouse=True)
def at_the_server(server, monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


def page_commands() -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [line for block in blocks if "$MODEL" in block for line in block.splitlines()]


def test_the_page_starts_the_server_that_is_tested(server):
    (command,) = (line for line in page_commands() if "skyrl_server.py" in line)
    words = shlex.split(command)
    assert (ROOT / words[1]).is_file()
    assert {word for word in words if word.startswith("--")} <= set(server.command)


def test_the_command_of_the_page_learns(server, tmp_path):
    """The reward of a model with random weights goes from under 0.5 to over 0.9."""
    (tmp_path / "main.py").write_text(SOURCE)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "say {n}", "ground_truth": ""}}\n' for n in range(20)))
    (command,) = (line for line in page_commands() if line.startswith("benchmax train"))
    words = shlex.split(command.replace("$MODEL", str(server.model)))
    words += [word for section, values in SMALL.items() for name, value in values.items()
              for word in (f"--{section}.{name}", str(value))]  # fmt: skip
    words += ["--steps", "16", "--output.name", "run"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("benchmax")), *words[1:]],
        cwd=tmp_path, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "run"
    first, last = rewards(run, "eval")
    assert first < 0.5 < 0.9 < last
    assert read_status(run)["state"] == "complete"
    lines = [line["values"] for line in read_metrics(run) if line["split"] == "train"]
    assert lines[0][metrics.DRIFT] < 1e-3  # what is trained is what was sampled
    assert {metrics.LOSS, metrics.ENTROPY, metrics.RATIO, metrics.LEARNING_RATE} <= set(lines[0])


def test_a_launch_on_the_platform_shows_the_same_curve(server, tmp_path):
    """The page's commands, on a platform of its own: the key is a secret, which nobody reads in the run's files."""
    (tmp_path / "main.py").write_text(SOURCE)
    rows = "".join(f'{{"prompt": "say {n}", "ground_truth": ""}}\n' for n in range(24))
    (tmp_path / "train_dataset.jsonl").write_text(rows)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHMAX_", "CASTFORM_"))}
    variables |= {"HOME": str(tmp_path), "BENCHMAX_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    variables["BENCHMAX_DATA"] = str(tmp_path / "data")
    del variables["TINKER_API_KEY"]

    def run(command: str, given: str = "") -> subprocess.CompletedProcess:
        words = [str(Path(sys.executable).with_name("benchmax")), *shlex.split(command)[1:]]
        return subprocess.run(words, input=given, cwd=tmp_path, env=variables, capture_output=True, text=True)

    (launch,) = (line for line in page_commands() if line.startswith("benchmax launch"))
    launch = launch.replace("$MODEL", str(server.model))
    launch += "".join(f" --set {name}={value}" for name, value in LAUNCHED.items()) + " --skip-validate --yes --json"
    try:
        refused = run(launch)
        assert refused.returncode
        assert "Tinker needs an API key, as a secret" in refused.stderr
        (secret,) = (line for line in page_commands() if "benchmax secrets set" in line)
        assert run(secret.partition("| ")[2], "tml-a-secret-of-ours").returncode == 0
        launched = run(launch)
        assert launched.returncode == 0, launched.stderr
        run_id = json.loads(launched.stdout)["runId"]
        watched = run(f"benchmax runs watch {run_id}")
        assert watched.returncode == 0, watched.stdout + watched.stderr
        shown = json.loads(run(f"benchmax runs scalars {run_id} --json").stdout)
    finally:
        run("benchmax down")
    folder = tmp_path / "data" / "runs" / run_id
    curve = rewards(folder, "train")
    assert curve[0] < 0.5 < 0.9 < curve[-1]
    assert json.loads((folder / "config.json").read_text())["backend"] == "tinker"
    assert "tml-a-secret-of-ours" not in "".join(
        path.read_text(errors="replace") for path in folder.rglob("*.*") if path.is_file()
    )
    assert [point["value"] for point in shown[metrics.REWARD]] == pytest.approx(curve)


async def test_a_server_that_dies_loses_no_group_and_the_run_resumes(server, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "REMOTE_SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(server_liveness, "CHECK_SECONDS", 0.5)
    groups, outages = [], []

    def on_event(kind: str, data: dict) -> None:
        if kind == "checkpoint" and data["step"] == 2:
            server.kill()
            groups.clear()
        elif kind == "group":
            groups.append(data["rollouts"])
        elif kind == "outage":
            outages.append(data["message"])

    tree = {**SMALL, "backend": "tinker", "model": {"name": str(server.model)}, "checkpoint": {"every": 1},
            "limits": {"steps": 4}, "output": {"dir": str(tmp_path), "name": "run"}}  # fmt: skip
    with pytest.raises(ModelUnavailable, match="Resume the run"):
        await train(build_config(tree), task=task(), on_event=on_event)
    assert [len(group) for group in groups] == [8] * 4
    assert {rollout.termination for group in groups for rollout in group} == {Termination.MODEL_ERROR}
    assert "server has not answered for" in outages[0]
    run = tmp_path / "run"
    assert read_status(run)["state"] == "failed"
    server.start()
    outcome = await resume(run, task=task())
    assert outcome.reason == "steps"
    assert [line["step"] for line in read_metrics(run) if line["split"] == "train"] == [0, 1, 2, 3]
    state = json.loads((run / "checkpoints" / "step-4" / "state.json").read_text())
    assert state["learner"]["weights_at"].startswith("tinker://")
