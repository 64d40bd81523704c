"""`benchmax validate --remote`: the local checks, then rows played on a real platform by a model of its machine."""

import json
import zipfile
from dataclasses import asdict

import pytest
import typer
from typer.testing import CliRunner

from benchmax.cli.local.validate import validate
from benchmax.errors import ConfigError, NotFoundError, UsageError
from benchmax.inference.weights.store import Card
from benchmax.net.ports import free_port
from benchmax.platform.exceptions import TrainerError
from benchmax.trainer.tiny_model import make_tiny
from session_world import supervised

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

app = typer.Typer()
app.command()(validate)

PROJECT = """
import importlib.util, os
from benchmax.envs.base_env import BaseEnv

class Sums(BaseEnv):
    system_prompt = "Answer with the number alone."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        right = float(messages[-1]["content"].strip() == task["ground_truth"])
        packed = float(importlib.util.find_spec("tinypack") is not None)
        return {"right": right, "packed": packed}
"""
FAILS_THERE = PROJECT.replace(
    "        right =", "        if 'BENCHMAX_RUN_DIR' in os.environ: raise RuntimeError('not here')\n        right ="
)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A platform whose machine has one model, and pip one package."""
    home = tmp_path_factory.mktemp("home")
    make_tiny(home / "models" / "toy", hidden=32, layers=1)
    card = Card("toy", "Toy", "made here", "none", "0" * 64, 1, 1)
    (home / "models" / "toy" / "benchmax.json").write_text(json.dumps(asdict(card)))
    make_wheel(home)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"BENCHMAX_HOME": home, "PIP_NO_INDEX": 1, "PIP_FIND_LINKS": home}.items():
            patch.setenv(name, str(value))
        with supervised(tmp_path_factory.mktemp("live")) as server:
            server.key = server.user()[1]
            yield server


def make_wheel(folder):
    info = "tinypack-1.0.dist-info"
    with zipfile.ZipFile(folder / "tinypack-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinypack.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinypack\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"tinypack.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """A machine on which nobody signed in and no platform runs."""
    for name in ("CASTFORM_PLATFORM_URL", "CASTFORM_API_KEY", "BENCHMAX_API_KEY", "BENCHMAX_PLATFORM_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(tmp_path / "credentials.json"))
    monkeypatch.setenv("BENCHMAX_NO_AUTO_START", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(live, monkeypatch):
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", live.url)
    monkeypatch.setenv("CASTFORM_API_KEY", live.key)
    return live


@pytest.fixture
def project(tmp_path):
    (tmp_path / "main.py").write_text(PROJECT)
    lines = [json.dumps({"prompt": f"{n}+1?", "ground_truth": str(n + 1)}) + "\n" for n in range(20)]
    (tmp_path / "train_dataset.jsonl").write_text("".join(lines))
    return tmp_path


def call(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_rows_are_played_there_after_the_local_checks(here, project):
    said = call("--remote", "--model", "toy", "--full-messages", "--pip", "tinypack==1.0").stderr
    local, _, remote = said.partition(f"Playing 2 of the rows on {here.url}.")
    assert "Sums: no errors" in local
    assert "✓ example 0 played on the platform (right 0, packed 1)" in remote
    assert "✓ example 1 played" in remote
    assert "user: '1+1?'" in remote, "every message of it"
    assert "assistant: " in remote


def test_programs_get_both_parts(here, project):
    (project / "main.py").write_text(f"{PROJECT}\nLAUNCH_CONFIG = {{'pip': ['tinypack==1.0']}}\n")
    found = json.loads(call("--remote", "--examples", "1", "--json").stdout)
    assert found["env"] == "Sums"
    assert found["remote"]["ok"] is True
    assert [each["rewards"]["packed"] for each in found["remote"]["examples"]] == [1.0], "the project's packages"
    assert "remote" not in json.loads(call("--local-only", "--json").stdout)


def test_what_fails_only_there_fails(here, project):
    (project / "main.py").write_text(FAILS_THERE)
    said = call("--remote", "--examples", "1", code=1).stderr
    assert "no errors" in said.partition("Playing 1 of the rows")[0]
    assert "✗ example 0 played on the platform" in said
    assert "not here" in said


def test_what_the_platform_refuses_is_one_line_before_anything_is_examined(here, project, monkeypatch):
    with pytest.raises(NotFoundError, match=r"^The platform has no model 'nope'\. Choose one of: .*toy.*\.$"):
        call("--remote", "--model", "nope")
    monkeypatch.setenv("CASTFORM_API_KEY", "sk_wrong")
    assert "(401)" in call("--remote", code=4).stderr
    monkeypatch.delenv("CASTFORM_API_KEY")
    refused = call("--remote", code=4).stderr
    assert "no API key" in refused
    assert "no errors" not in refused
    monkeypatch.setenv("CASTFORM_API_KEY", here.key)
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(TrainerError, match=r"^Cannot reach http\S+: .*benchmax up.*\.$"):
        call("--remote")


def test_without_a_platform_it_says_how_to_start_one(project):
    with pytest.raises(ConfigError, match="benchmax up"):
        call("--remote")
    assert "no errors" in call("--local-only").stderr


def test_options_that_do_not_go_together(project):
    with pytest.raises(UsageError, match="contradict one another"):
        call("--remote", "--local-only")
    assert "Add --remote to ask it." in call("--pip", "tinypack").stderr
