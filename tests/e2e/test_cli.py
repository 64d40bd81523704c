"""The commands a newcomer types: what they print, where, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ENV = """
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text

class Capitals(BaseEnv):
    system_prompt = "Answer with the city alone."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(extract_completion_text(messages) == task["ground_truth"])}
"""
ROWS = "prompt,ground_truth\n" + "".join(f"Capital of country {i}?,City {i}\n" for i in range(20))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(ENV)
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from benchmax.cli import main; main()", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done


def test_eval_of_own_environment(project: Path):
    done = run(project, "eval", "main.py", "--data", "rows.csv", "-r", "2", "--json", "--out", "gold")
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["report"]["reward"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 20}
    assert result["report"]["pass_at"]["2"]["mean"] == 1.0
    assert result["report"]["rollouts"] == 40
    text = run(project, "eval", "--resume", "gold")
    assert "reward" in text.stdout
    assert "1.000" in text.stdout


def test_compare_sorts_by_regression_and_replay_shows_an_edited_reward(project: Path):
    run(project, "eval", "main.py", "--data", "rows.csv", "--out", "gold")
    run(project, "eval", "main.py", "--data", "rows.csv", "--model", "scripted:City 3", "--out", "stuck")
    compared = json.loads(run(project, "compare", "gold", "stuck", "--json").stdout)
    assert compared["verdict"] == "worse"
    assert [pair["delta"] for pair in compared["pairs"]] == [-1.0] * 19 + [0.0]
    assert compared["pairs"][-1]["prompt"] == "Capital of country 3?"
    assert "worse" in run(project, "compare", "gold", "stuck").stdout
    (project / "main.py").write_text(ENV.replace('== task["ground_truth"]', '== "City 3"'))
    replayed = json.loads(run(project, "replay", "stuck", "--json").stdout)
    assert replayed["changed"] == 19
    assert replayed["comparison"]["verdict"] == "better"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("eval", "nothing"), 3, "There is no environment named 'nothing'"),
        (("eval", "arithmetik"), 3, "Did you mean 'arithmetic'?"),
        (("eval", "missing.py"), 3, "There is no file missing.py"),
        (("eval", "main.py"), 2, "--data FILE"),
        (("eval", "main.py", "--data", "none.csv"), 3, "There is no file none.csv"),
        (("eval", "main.py", "--data", "rows.csv", "--env-arg", "x"), 2, "is not KEY=VALUE"),
        (("eval", "main.py", "--data", "rows.csv", "--group-size", "0"), 2, "group-size"),
        (("eval", "broken.py", "--data", "rows.csv"), 2, "broken.py cannot be imported: NameError"),
        (("eval", "two.py", "--data", "rows.csv"), 2, "Name it as two.py:ClassName"),
        (("eval", "--resume", "nowhere"), 3, "holds no evaluation"),
        (("compare", "a", "b"), 3, "There is nothing at a"),
        (("frobnicate",), 2, "frobnicate"),
        (("eval", "main.py", "--data", "bad.jsonl"), 2, "bad.jsonl"),
    ],
)
def test_mistakes_get_one_clear_line(project: Path, arguments, code, says):
    (project / "broken.py").write_text("import os\nnonsense\n")
    (project / "two.py").write_text(ENV + "\nclass Other(Capitals):\n    pass\n")
    (project / "bad.jsonl").write_text('{"prompt": "ok"}\n{"prompt": \n')
    done = run(project, *arguments)
    assert done.returncode == code, done.stderr
    assert says in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_limits_are_printed(project: Path):
    table = json.loads(run(project, "limits", "--json").stdout)
    assert {
        "name": "MIN_TRAIN_ROWS",
        "value": 16,
        "unit": "rows",
        "meaning": "fewest rows a training run accepts",
    } in table
    assert "MIN_TRAIN_ROWS" in run(project, "limits").stdout


def test_hostile_text_is_shown_escaped(project: Path):
    evil = "\x1b]52;c;aGk=\x07\x1b[31m[bold]red[/bold]\u202e"
    (project / "rows.json").write_text(json.dumps([{"prompt": evil + str(i), "ground_truth": "x"} for i in range(3)]))
    run(project, "eval", "main.py", "--data", "rows.json", "--model", "scripted:x", "--out", "a")
    run(project, "eval", "main.py", "--data", "rows.json", "--model", "scripted:y", "--out", "b")
    shown = run(project, "compare", "a", "b").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[bold]red[/bold]" in shown
