"""The core, the doctor, an evaluation and a training run, in processes without a call that only Linux has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from training_world import store_tiny

ELSEWHERE = Path(__file__).parent / "elsewhere"
ENV = """
from benchmax import BaseEnv, extract_completion_text, make_example


class EchoEnv(BaseEnv):
    system_prompt = "Answer with the word alone."

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        prompt = [{"role": "user", "content": f"Say {example['word']}."}]
        return make_example(prompt_messages=prompt, task={"ground_truth": example["word"]})

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(extract_completion_text(messages) == task["ground_truth"])}
"""
TRAIN = [
    "--recipe", "plain", "--model.tune", "full", "--rollouts.prompts_per_step", "4", "--rollouts.group_size", "4",
    "--rollouts.max_new_tokens", "6", "--limits.steps", "2",
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "echo_env.py").write_text(ENV)
    rows = [{"word": f"word{number}"} for number in range(24)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def elsewhere(project: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command of benchmax, run to its end where Linux is absent."""
    variables = {**os.environ, "PYTHONPATH": str(ELSEWHERE), "BENCHMAX_HOME": str(project / "home"), "NO_COLOR": "1"}
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
