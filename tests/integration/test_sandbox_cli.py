"""`--sandbox` of eval and train: the environment's code is loaded in the sandbox alone."""

from __future__ import annotations

import json
import os
import sys

import pytest
from typer.testing import CliRunner

from benchmax.cli.app import app
from training_world import make_tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

ENV = """
import os
from benchmax import BaseEnv

class Reads(BaseEnv):
    found = os.path.exists("{secret}")

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {{"outside": float(self.found or os.getpid() == {pid})}}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret").write_text("x")
    (folder / "main.py").write_text(ENV.format(secret=tmp_path / "secret", pid=os.getpid()))
    rows = [{"prompt": f"{number}?", "ground_truth": str(number)} for number in range(20)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(folder)
    return folder


def rewards(*words):
    done = CliRunner().invoke(app, ["eval", "main.py", "--data", "rows.jsonl", "--json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["report"]["reward"]["mean"]


def test_an_evaluation_in_a_sandbox_sees_only_its_own(project):
    assert rewards() == 1.0
    assert rewards("--sandbox") == 0.0


def test_a_training_run_in_a_sandbox(project, tmp_path):
    model = make_tiny(tmp_path / "model", hidden=32, layers=2)
    words = ["train", "main.py", "--data", "rows.jsonl", "--model", str(model), "--steps", "1", "--sandbox"]
    words += ["--rollouts.group_size", "2", "--rollouts.max_tokens", "4"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (lines,) = (path.read_text().splitlines() for path in project.glob("**/metrics.jsonl"))
    values = [json.loads(line)["values"] for line in lines]
    assert {value for each in values for name, value in each.items() if name == "reward/mean"} == {0.0}


@pytest.mark.parametrize(
    "name", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("arithmetic", "code")), "excel"]
)
def test_ready_environments_bring_their_rows_and_their_sandboxes_into_one(name, tmp_path, monkeypatch):
    """Their rows are made inside; code that a model writes is held there by a sandbox within the sandbox."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["eval", name, "--sandbox", "--rows", "3", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["report"]
    assert (report["reward"]["mean"], report["scored"]) == (1.0, 3)


CANARY = """
from pathlib import Path
try:
    Path("{canary}").touch()
except OSError:
    pass
"""


def test_what_was_not_earned_is_not_explained_by_running_the_code_outside(project, tmp_path):
    canary = tmp_path / "canary"
    code = (project / "main.py").read_text() + CANARY.format(canary=canary)
    (project / "main.py").write_text(code)
    model = make_tiny(tmp_path / "model", hidden=32, layers=2)
    words = ["eval", "main.py", "--data", "rows.jsonl", "--rows", "2", "--model", str(model), "--max-tokens", "4"]
    done = CliRunner().invoke(app, [*words, "--sandbox"])
    assert done.exit_code == 0, done.output
    assert "without --sandbox" in " ".join(done.output.split())
    assert not canary.exists()
    CliRunner().invoke(app, words)
    assert canary.exists(), "outside it is made"
