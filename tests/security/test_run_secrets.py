"""A run's secrets are on no line that is written (S34), and its processes start nothing of their own (S33)."""

import json
import subprocess
import sys

import pytest

from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.files import redaction
from benchmax.platform.runner.processes.run_process import inherited_variables
from benchmax.rollouts import record_files
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import build_config
from benchmax.trainer.rundir import RunDir

SECRETS = ["sk-0123456789", 'quo"ted\\and\nlong', "sk-0123456789-and-more", "geheimnis-ü", "short"]


@pytest.fixture
def secrets():
    redaction.keep_secret(SECRETS)
    yield
    redaction.keep_secret(())


def test_no_line_of_a_run_directory_holds_a_secret(tmp_path, secrets):
    said = " and ".join(SECRETS)
    record = {
        "id": "a", "example_id": "e", "split": "train", "step": 0, "sample": 0, "reward": 1.0, "rewards": {"x": 1.0},
        "messages": [{"role": "user", "content": said}], "task": {"key": SECRETS[0]},
        "logs": [{"seconds": 0.0, "level": "INFO", "message": said}],
    }  # fmt: skip
    run = RunDir.create(tmp_path / "run", build_config({}))
    run.write_rollouts("train", 0, [Rollout.from_dict(record)])
    run.log_event("alert", message=said)
    run.log_metrics(0, "train", {SECRETS[2]: 1.0})
    run.close()
    with record_files.RolloutLog(tmp_path / "run" / "rollouts.jsonl") as file:
        file.append(Rollout.from_dict(record))
    lines = [line for path in (tmp_path / "run").rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == 4
    for line in lines:
        json.loads(line)
        assert "[secret]" in line
        assert not [
            value for value in SECRETS if len(value) > 5 and json.dumps(value, ensure_ascii=False)[1:-1] in line
        ]
    assert any("short" in line for line in lines), "what is too common to hide stays"
    assert "more" not in lines[0].partition("messages")[0], "the longest first: no rest of one is left"


def test_a_secret_of_digits_damages_no_line(tmp_path):
    redaction.keep_secret(["123456"])
    try:
        record = {
            "id": "a", "example_id": "e", "reward": 0.1234567, "rewards": {"x": 0.1234567}, "started_at": 1763123456.5,
            "messages": [{"role": "user", "content": "my PIN is 123456"}],
        }  # fmt: skip
        with record_files.RolloutLog(tmp_path / "rollouts.jsonl") as file:
            file.append(Rollout.from_dict(record))
        (kept,) = record_files.read_rollouts(tmp_path / "rollouts.jsonl")
    finally:
        redaction.keep_secret(())
    assert (kept.reward, kept.started_at) == (0.1234567, 1763123456.5)
    assert kept.messages[0]["content"] == "my PIN is [secret]"


def test_an_environment_does_not_start_a_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("BENCHMAX_NO_AUTO_START", raising=False)
    child = inherited_variables()
    assert child["BENCHMAX_NO_AUTO_START"] == "1"
    monkeypatch.setenv("BENCHMAX_NO_AUTO_START", child["BENCHMAX_NO_AUTO_START"])
    seen = {**scrubbed_environment(), "HOME": str(tmp_path), "BENCHMAX_DATA": str(tmp_path / "data")}
    code = "from benchmax.platform.client import TrainerClient; TrainerClient().list_runs()"
    ended = subprocess.run([sys.executable, "-c", code], env=seen, capture_output=True, text=True, timeout=110)
    assert ended.returncode != 0
    assert "NO_AUTO_START" in ended.stderr
    assert not (tmp_path / "data" / "daemon.json").exists()
