"""A package that somebody else installs adds an environment, a model, a check, a command, a trainer, a corpus, imports.

`tests/browser/test_plugin.py` uses the same package from the console.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from benchmax.platform.client import TrainerClient
from benchmax.platform.daemon import liveness
from benchmax.platform.sdk.run import ENDED
from forked_commands import ForkedCommands
from plugin_world import install, platform
from runner_world import wait_until


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with the example package, and a broken one."""
    return install(tmp_path_factory.mktemp("plugins") / "venv")


@pytest.fixture(scope="module")
def commands(python):
    with ForkedCommands(python) as forked:
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


def test_a_corpus_is_searched_by_its_name(python):
    code = (
        "from benchmax.search import open_corpus; print([hit.id for hit in open_corpus('dictionary:').search('apple')])"
    )
    assert subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "['apple']\n"


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


def test_a_broken_plugin_is_named_and_harms_nobody(call, python):
    done = subprocess.run([python, "-m", "benchmax", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("broken-plugin")) == (0, 1)
    listed = subprocess.run([python, "-m", "benchmax", "env", "list", "--json"], capture_output=True, text=True)
    assert {name: name in {each["name"] for each in json.loads(listed.stdout)} for name in ("anagrams", "broken")} == {
        "anagrams": True,
        "broken": False,
    }
    assert "broken-plugin" in listed.stderr
    named = call("env", "show", "broken", code=2).stderr
    assert "broken-plugin" in named
    assert "out of order" in named


@pytest.fixture
def trainer(python, tmp_path):
    with platform(python, tmp_path) as (data, _):
        key = json.loads(data.credentials.read_text())["api_key"]
        with TrainerClient(key, liveness.server_url(data)) as client:
            yield client


def test_the_platform_lists_examines_and_trains_it(trainer):
    listed = {each["id"]: each for each in trainer.list_environments()}
    assert listed["anagrams"]["path"] == "anagrams.environment.AnagramEnv"
    assert "broken" not in listed
    assert not listed["rowless"]["bringsRows"]
    assert [file["path"] for file in trainer.get_environment("rowless")["files"]] == ["rowless_plugin.py"]
    report = trainer.examine_environment("anagrams")
    assert {"long-prompts": "passed"}.items() <= {each["id"]: each["state"] for each in report["checks"]}.items()
    run_id = trainer.launch_environment("anagrams", launcher_args={"backend": "imitate"}, eval_share=0.1)
    run = wait_until(lambda: (run := trainer.get_run(run_id))["status"] in ENDED and run, 120)
    assert run["status"] == "complete", run["statusReason"]
    assert trainer.get_run_scalars(run_id, "train")["reward/mean"] == [{"step": 0, "value": 1.0}]
