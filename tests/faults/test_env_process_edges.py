"""An environment in a process of its own: rare ends, heavy rows, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import load_examples
from benchmax.envs.remote import open_remote_env
from benchmax.envs.remote.wire import FRAME_BYTES
from benchmax.errors import ConfigError, DatasetError, EnvError


class Plain(BaseEnv):
    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **kw):
        os.kill(os.getpid(), signal.SIGRTMIN + 1)
        await asyncio.sleep(60)

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


async def test_a_process_killed_by_a_signal_without_a_name_is_mourned_too():
    env = await open_remote_env(dump_bundle(Plain))
    try:
        with pytest.raises(EnvError, match=f"killed by signal {signal.SIGRTMIN + 1}"):
            await asyncio.wait_for(env.run_tool("r", "end"), 30)
        assert await asyncio.wait_for(env.compute_reward("other", [], None), 30) == {"x": 1.0}
    finally:
        await env.shutdown()


async def test_rows_that_are_heavy_together_cross_in_several_batches():
    heavy = "ü" * 100_000  # six bytes each on the way
    rows = [{"prompt": f"{number} {heavy}"} for number in range(120)]
    assert len(rows) * 6 * len(heavy) > FRAME_BYTES
    env = await open_remote_env(dump_bundle(Plain))
    try:
        loaded = await env.preprocess(rows)
        assert [each["id"] for each in loaded] == [each["id"] for each in load_examples(rows, Plain)]
        with pytest.raises(DatasetError, match=r"rows:2: the row is .* bytes, the limit is"):
            await env.preprocess([rows[0], {"prompt": "x" * (FRAME_BYTES // 2)}])
    finally:
        await env.shutdown()


async def test_a_bundle_opened_with_arguments_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="brings its constructor_args"):
        await open_remote_env(dump_bundle(Plain), constructor_args={"a": 1})
    assert list(tmp_path.iterdir()) == []
