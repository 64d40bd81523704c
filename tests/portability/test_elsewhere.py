"""The core, the doctor, an evaluation, a training run and the platform, without a call that only Linux has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.net.ports import free_port
from training_world import store_tiny

ELSEWHERE = Path(__file__).parent / "elsewhere"
ENV = """
import select

from benchmax import BaseEnv, extract_completion_text, make_example


class EchoEnv(BaseEnv):
    system_prompt = "Answer with the word alone."

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        prompt = [{"role": "user", "content": f"Say {example['word']}."}]
        return make_example(prompt_messages=prompt, task={"ground_truth": example["word"]})

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        assert not hasattr(select, "epoll"), "this process has what only Linux has"
        return {"said": float(extract_completion_text(messages) == task["ground_truth"])}
"""
TRAIN = [
    "--recipe", "plain", "--model.tune", "full", "--rollouts.prompts_per_step", "4", "--rollouts.group_size", "4",
    "--rollouts.max_new_tokens", "6", "--limits.steps", "2",
]  # fmt: skip
LAUNCH = [
    part
    for setting in (
        "model=toy",
        "max_steps=2",
        "prompts_per_step=4",
        "group_size=4",
        "max_new_tokens=6",
        "recipe=plain",
    )
    for part in ("--set", setting)
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "echo_env.py").write_text(ENV)
    rows = [{"word": f"word{number}"} for number in range(24)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def elsewhere(project: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command of benchmax, run to its end where Linux is absent."""
    places = {"BENCHMAX_HOME": str(project / "home"), "BENCHMAX_DATA": str(project / "data")}
    variables = {**os.environ, "PYTHONPATH": str(ELSEWHERE), "NO_COLOR": "1", **places}
    command = [sys.executable, "-m", "benchmax", *argv]
    return subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, timeout=240)


def test_the_process_has_nothing_of_linux():
    code = "import os, select, sys; print(sys.platform, hasattr(select, 'epoll'), os.path.exists('/proc/self'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ELSEWHERE)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["darwin", "False", "False"]


def test_the_doctor_examines_an_environment(project):
    done = elsewhere(project, "validate", "echo_env.py:EchoEnv", "--data", "rows.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EchoEnv: no errors" in done.stderr


def test_an_evaluation_scores_every_sample(project):
    argv = ("eval", "echo_env.py:EchoEnv", "--data", "rows.jsonl", "--model", "scripted:gold", "-n", "8", "--json")
    done = elsewhere(project, *argv, "--out", "runs/eight")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["report"]["reward"]["mean"] == 1.0


def test_a_model_is_trained(project):
    store_tiny(project / "home", "toy")
    done = elsewhere(project, "train", "echo_env.py:EchoEnv", "--data", "rows.jsonl", "--model.name", "toy", *TRAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    (metrics,) = project.rglob("metrics.jsonl")
    assert len([line for line in metrics.read_text().splitlines() if "reward/mean" in line]) >= 2


def test_the_platform_starts_trains_and_stops(project):
    store_tiny(project / "home", "toy")
    started = elsewhere(project, "up", "--port", str(free_port()))
    assert started.returncode == 0, started.stdout + started.stderr
    try:
        shown = json.loads(elsewhere(project, "status", "--json").stdout)
        assert (shown["server"]["running"], shown["runner"]["running"]) == (True, True)
        argv = ("launch", "echo_env.py:EchoEnv", "--data", "rows.jsonl", "--yes", *LAUNCH, "--json")
        launched = elsewhere(project, *argv)
        assert launched.returncode == 0, launched.stdout + launched.stderr
        run_id = json.loads(launched.stdout)["runId"]
        watched = elsewhere(project, "runs", "watch", run_id)
        assert watched.returncode == 0, watched.stdout + watched.stderr
        assert json.loads(elsewhere(project, "runs", "get", run_id, "--json").stdout)["errorCount"] == 0
    finally:
        stopped = elsewhere(project, "down")
    assert "Stopped." in stopped.stderr
    assert elsewhere(project, "status").returncode == 1
