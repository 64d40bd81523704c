"""The command of the page about verifiers runs, as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import verifiers.v1 as vf
from test_runs import call

from benchmax.testing import FakeModelServer
from trainer_pages import check_page, page

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "docs"))

from markdown_blocks import SERVER, blocks_of  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="session")


def answer(body):
    last = body["messages"][-1]
    return last["content"] if last["role"] == "tool" else call(int(last["content"][0]), 1)


async def test_the_evaluation_of_the_page_runs(tmp_path):
    page = blocks_of((ROOT / "docs" / "trainers" / "verifiers.md").read_text("utf-8"))
    for block in page:
        if title := block.options.get("title"):
            (tmp_path / title).write_text(block.body)
    (command,) = (line for block in page for line in block.body.splitlines() if line.startswith("vf-eval"))
    async with FakeModelServer(answer) as server:
        words = shlex.split(command.replace(SERVER, server.base_url))
        words[0] = str(Path(sys.executable).with_name("vf-eval"))
        done = await asyncio.create_subprocess_exec(*words, cwd=tmp_path, stdout=-1, stderr=-2)
        said, _ = await done.communicate()
    assert done.returncode == 0, said.decode()[-3000:]
    (written,) = tmp_path.glob("outputs/*/traces.jsonl")
    episodes = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(episodes) == 8
    for episode in episodes:
        (trace,) = episode["traces"]
        assert {name: reward["score"] for name, reward in trace["rewards"].items()} == {"short": 0.5, "right": 1.0}
        assert trace["metrics"] == {"turns": 2.0, "tool_calls": 1.0}


async def test_the_page_installs_what_is_tested_here():
    check_page("verifiers", "verifiers")


async def test_the_settings_for_prime_rl_name_the_same_environment(tmp_path, monkeypatch):
    """verifiers reads the part of prime-rl's configuration that is its own, and finds the rows."""
    (text,) = re.findall(r"```toml\n(.*?)```", page("verifiers"), re.DOTALL)
    (source,) = tomllib.loads(text)["orchestrator"]["train"]["source"]
    for block in blocks_of(page("verifiers")):
        if title := block.options.get("title"):
            (tmp_path / title).write_text(block.body)
    monkeypatch.chdir(tmp_path)
    env = vf.load_environment(vf.resolve_env_config(source["env"]))
    assert [task.data.example["task"]["ground_truth"] for task in env.taskset] == ["2", "3"]
    assert env.config.agent.max_turns == 4
