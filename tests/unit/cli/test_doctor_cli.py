"""`benchmax validate`: sources of rows, output for people and programs, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmax.cli.app import app
from benchmax.envs.loading import load_env_class
from benchmax.errors import NotFoundError, UsageError
from broken_envs import ROWS

PROJECT = """
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text

print("printed at import")

class Capitals(BaseEnv):
    system_prompt = "Answer with the city alone."
    def __init__(self, bonus=0.0, **kwargs):
        self.bonus = bonus
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        print("printed in a reward")
        right = extract_completion_text(messages).strip() == task["ground_truth"]
        return {"correct": float(right), "bonus": float(self.bonus)}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = "capitals_project.py"
    (tmp_path / name).write_text(PROJECT)
    (tmp_path / "train_dataset.jsonl").write_text("\n".join(map(json.dumps, ROWS[:16])))
    (tmp_path / "eval_dataset.jsonl").write_text("\n".join(map(json.dumps, ROWS[15:])))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["validate", *map(str, arguments)])


def in_project(project: Path, *arguments: object) -> Result:
    return run("--dir", project, "--run-file", "capitals_project.py", *arguments)


def test_a_built_in_environment_brings_its_rows() -> None:
    result = run("arithmetic")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "ArithmeticEnv: no errors, 0 warnings" in result.stderr
    assert "format" in result.stderr
    assert run("arithmetic", "--data", "sums2", "--examples", "2").exit_code == 0


def test_json_is_all_there_is_on_stdout(project: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from benchmax.cli import main; main()",
        "validate",
        "--run-file",
        "capitals_project.py",
    ]
    result = subprocess.run([*command, "--json"], cwd=project, capture_output=True, text=True, timeout=120)
    diagnosis = json.loads(result.stdout)
    assert diagnosis["env"] == "Capitals"
    assert diagnosis["rows"] == 16
    assert "printed in a reward" in result.stderr
    checks = {finding["check"]: finding["severity"] for finding in diagnosis["findings"]}
    assert checks["train-eval-overlap"] == "warning"
    assert checks["dead-component"] == "warning"


def test_warnings_fail_only_when_strict(project: Path) -> None:
    assert in_project(project).exit_code == 0
    assert in_project(project, "--strict").exit_code == 1


def test_errors_exit_1_and_arguments_reach_the_constructor(project: Path) -> None:
    result = in_project(project, "--env-arg", "bonus=1", "--verbose")
    assert result.exit_code == 1
    assert "✗ saying nothing does not pay" in result.stderr
    assert "pays-for-nothing" in result.stderr
    assert "bonus=1" in result.stderr
    assert "✓ the environment can be built" in result.stderr


def test_the_audit_shows_question_gold_answer_and_rewards(project: Path) -> None:
    result = in_project(project, "--reward-audit")
    assert "gold: 'Capital of" in result.stderr
    assert "correct=1, bonus=0" in result.stderr


def test_the_projects_own_settings_count_and_flags_win(project: Path) -> None:
    file = project / "capitals_project.py"
    file.write_text(PROJECT + '\nVALIDATE_CONFIG = {"env_args": {"bonus": 1}, "examples": 2}\n')
    assert json.loads(in_project(project, "--json").stdout)["examples"] == 2
    assert in_project(project).exit_code == 1
    assert in_project(project, "--env-arg", "bonus=0").exit_code == 0
    file.write_text(PROJECT + '\nVALIDATE_CONFIG = {"example": 2}\n')
    assert isinstance(in_project(project).exception, UsageError)


def test_wrong_usage_is_told_with_the_way_out(project: Path) -> None:
    missing = run("--dir", project, "--run-file", "none.py")
    assert isinstance(missing.exception, UsageError)
    assert "--run-file" in str(missing.exception)
    (project / "train_dataset.jsonl").unlink()
    no_rows = in_project(project)
    assert isinstance(no_rows.exception, UsageError)
    assert "--data FILE" in str(no_rows.exception)
    assert isinstance(in_project(project, "--data", project / "no.jsonl").exception, NotFoundError)
    assert isinstance(run("arithmetik").exception, NotFoundError)
    assert run("arithmetic", "--examples", "0").exit_code == 2


def test_hostile_text_is_shown_not_run(project: Path) -> None:
    rows = [{"prompt": f"[red]Say {i}\x1b]0;owned\x07", "ground_truth": f"\x1b[2J[/]{i}"} for i in range(20)]
    (project / "train_dataset.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = in_project(project, "--env-arg", "bonus=1", "--reward-audit")
    assert result.exit_code == 1
    assert "\x1b" not in result.stderr
    assert "\x07" not in result.stderr
    assert "\\x1b[2J[/]" in result.stderr


def test_a_class_is_chosen_by_name(project: Path) -> None:
    (project / "two_envs.py").write_text(PROJECT + "\nclass Other(Capitals):\n    pass\n")
    assert run(project / "two_envs.py").exception is not None
    assert json.loads(run(project / "two_envs.py", "--env-class", "Other", "--json").stdout)["env"] == "Other"
    assert load_env_class(f"{project / 'two_envs.py'}:Capitals").__name__ == "Capitals"
