"""A new project runs at once; the machine's own check says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmax.cli.local.setup import SKILLS, TEMPLATES
from forked_commands import ForkedCommands

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too


Run = Callable[..., subprocess.CompletedProcess[str]]


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("BENCHMAX_", "CASTFORM_"))}


def homes(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "BENCHMAX_DATA": str(folder / "data"), "BENCHMAX_HOME": str(folder / "home")}


@pytest.fixture(scope="module")
def cli() -> Iterator[Run]:
    """Runs a command in a folder that is its home too."""
    with ForkedCommands(variables=clean()) as forked:

        def command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
            done = forked.run(arguments, folder, **homes(folder), **variables)
            assert "Traceback" not in done.stderr
            return done

        yield command


def test_a_new_project_is_sound(tmp_path: Path, cli: Run) -> None:
    done = cli(tmp_path, "setup", "--dir", "my project", "--json")
    made = json.loads(done.stdout)
    project = tmp_path / "my project"
    assert "Next: cd 'my project' && python main.py, then read GETTING_STARTED.md." in done.stderr
    assert made["kept"] == []
    for home in (".claude", ".agents"):
        assert sorted(path.name for path in (project / home / "skills").iterdir()) == sorted(SKILLS)
    for skill in SKILLS:
        text = (project / ".agents" / "skills" / skill / "SKILL.md").read_text()
        assert text.startswith(f"---\nname: {skill}\ndescription: ")
    assert {"main.py", "AGENTS.md", "CLAUDE.md", "GETTING_STARTED.md"} <= {path.name for path in project.iterdir()}
    before = {path.name: path.read_text() for path in project.glob("*.jsonl")}
    assert [len(before[name].splitlines()) for name in ("train_dataset.jsonl", "eval_dataset.jsonl")] == [3, 2]
    command = [sys.executable, "main.py"]
    ran = subprocess.run(command, cwd=project, env=clean() | homes(project), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "validate_env passed" in ran.stdout
    assert {path.name: path.read_text() for path in project.glob("*.jsonl")} == before
    checked = cli(project, "validate")
    assert checked.returncode == 0, checked.stderr


def test_what_is_there_stays(tmp_path: Path, cli: Run) -> None:
    (tmp_path / "main.py").write_text("mine = 1\n")
    (tmp_path / "AGENTS.md").write_text("mine\n")
    refused = cli(tmp_path, "setup")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    assert not (tmp_path / "GETTING_STARTED.md").exists(), "refused before anything is written"
    done = cli(tmp_path, "setup", "--no-template", "--agent", "codex")
    assert done.returncode == 0
    assert "Next: read GETTING_STARTED.md." in done.stderr
    assert (tmp_path / "main.py").read_text() == "mine = 1\n"
    assert (tmp_path / "AGENTS.md").read_text() == "mine\n"
    assert not (tmp_path / ".claude").exists()
    done = cli(tmp_path, "setup", "--force")
    assert done.returncode == 0
    assert "Next: python main.py, then read" in done.stderr
    assert "CustomEnv" in (tmp_path / "main.py").read_text()


def test_only_templates_that_there_are_are_offered(tmp_path: Path, cli: Run) -> None:
    offered = cli(tmp_path, "setup", "--help").stdout.partition("What main.py begins as:")[2].partition(".")[0]
    assert [name.strip() for name in offered.split(",")] == list(TEMPLATES)
    for name in TEMPLATES:
        assert cli(tmp_path, "setup", "--dir", name, "--template", name).returncode == 0
    refused = cli(tmp_path, "setup", "--dir", "x", "--template", "rag")
    assert (refused.returncode, "Use one of these: generic." in refused.stderr) == (2, True)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("words", [("guide",), ("help",)])
def test_words_for_a_newcomer(tmp_path: Path, cli: Run, words: tuple[str, ...]) -> None:
    done = cli(tmp_path, *words)
    assert done.returncode == 0
    assert "launch" in done.stdout


def test_the_machine_is_checked(tmp_path: Path, cli: Run) -> None:
    done = cli(tmp_path, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0, done.stderr
    assert checks["python"]["state"] == checks["platform"]["state"] == "ok"
    assert "models pull" in checks["models"]["says"]
    assert not (tmp_path / "data").exists(), "nothing was started"
    away = {"BENCHMAX_PLATFORM_URL": "http://127.0.0.1:9", "BENCHMAX_API_KEY": "sk_x"}
    done = cli(tmp_path, "doctor", "--json", **away)
    assert done.returncode == 1
    assert {check["name"]: check["state"] for check in json.loads(done.stdout)}["platform"] == "failed"
