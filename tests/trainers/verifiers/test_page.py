"""The command of the page about verifiers runs, as it stands there."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

import pytest
from test_runs import call

from benchmax.testing import FakeModelServer

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
