"""A package that somebody else installs adds an environment, a model, a check, a command, a trainer, a corpus, imports.

The example package is installed for real, into a folder of its own that only these processes look into.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forked_commands import ForkedCommands

ROOT = Path(__file__).resolve().parents[2]
BROKEN = "[benchmax.environments]\nbroken = broken_plugin:Env\n[benchmax.commands]\nbroken = broken_plugin:command\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the example package in it, and a broken one beside."""
    folder = tmp_path_factory.mktemp("plugins")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(ROOT / "examples" / "plugin")], check=True)
    (folder / "broken_plugin.py").write_text("raise RuntimeError('out of order')\n")
    about = folder / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(BROKEN)
    return folder


@pytest.fixture(scope="module")
def commands(installed):
    with ForkedCommands(variables={**os.environ, "PYTHONPATH": str(installed)}) as forked:
        yield forked


@pytest.fixture
def call(commands, tmp_path):
    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = commands.run(words, tmp_path)
        assert done.returncode == code, done.stderr
        return done

    return run


def test_an_environment_has_a_name_everywhere(call):
    named = {each["name"]: each for each in json.loads(call("env", "list", "--json").stdout)}
    assert named["anagrams"]["class"] == "anagrams.environment.AnagramEnv"
    assert not named["anagrams"]["built_in"]
    (rollout,) = json.loads(call("env", "run", "anagrams", "--json").stdout)
    assert rollout["messages"][-1]["role"] == "assistant"


def test_a_kind_of_model_answers(call, tmp_path):
    found = json.loads(call("eval", "anagrams", "--model", "reversing:x", "--json", "--out", "e").stdout)
    assert found["report"]["rollouts"] == 18
    assert found["report"]["reward"]["mean"] < 0.5


def test_environments_are_named_by_an_address(call):
    found = json.loads(call("eval", "scrambled:apple+river", "--model", "reversing:x", "--json", "--out", "e").stdout)
    assert found["report"]["rollouts"] == 2


def test_a_check_is_made_and_shown(call):
    lines = {line["id"]: line for line in json.loads(call("validate", "anagrams", "--json").stdout)["checks"]}
    assert lines["long-prompts"]["state"] == "passed"


def test_a_command_is_there(call):
    assert call("anagrams", "elpap").stdout == "apple\n"


def test_a_backend_trains(call, tmp_path):
    call("train", "anagrams", "--backend", "imitate", "--output.name", "one", "--data.min_rows", "4")
    metrics = json.loads((tmp_path / "runs" / "one" / "metrics.jsonl").read_text())
    assert metrics["values"]["reward/mean"] == 1.0
    refused = call("train", "anagrams", "--backend", "nothing", code=3)
    assert "embedded, imitate" in refused.stderr


def test_a_broken_plugin_is_named_and_harms_nobody(call, installed):
    command, variables = [sys.executable, "-m", "benchmax", "limits"], {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert (done.returncode, "broken-plugin" in done.stderr) == (0, True)
    named = call("env", "show", "broken", code=2).stderr
    assert "broken-plugin" in named
    assert "out of order" in named
