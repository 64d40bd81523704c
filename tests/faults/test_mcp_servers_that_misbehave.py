"""Servers that flood, hang, close their output or die over HTTP: bounded, ended, told, and never scored."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import pytest

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.client.mcp_session import MOST_UNANSWERED, NoAnswer
from benchmax.envs.mcp.client.output_tail import OutputTail
from benchmax.envs.mcp.client.stdio_session import StdioSession
from benchmax.envs.remote.output_lines import TAIL_LINES
from benchmax.errors import McpError
from mcp_world import PROBE, make_workdir, opened

ODD = """
import json, os, sys, time
def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, number = message["method"], message["id"]
    name = (message.get("params") or {}).get("name")
    if method == "initialize":
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "odd"}}
        say({"id": number, "result": about})
    elif method == "tools/list":
        say({"id": number, "result": {"tools": [{"name": each} for each in ("flood", "shut", "crash", "well", "odd")]}})
    elif name == "flood":
        print("the disk is full", file=sys.stderr, flush=True)
        while True:
            sys.stdout.write("noise " * 10 + "\\n")
    elif name == "shut":
        say({"id": number, "result": {"content": []}})
        os.close(1)
        time.sleep(600)
    elif name == "crash":
        os._exit(3)
    elif name == "odd":
        text = b'{"content": [{"type": "text", "text": "caf\\xe9"}]}'
        os.write(1, b'{"jsonrpc": "2.0", "id": %d, "result": %b}\\n' % (number, text))
    else:
        say({"id": number, "result": {"content": [{"type": "text", "text": "well"}]}})
"""
REWARDS = "def always(**kwargs):\n    return 1.0\nreward_functions = {'always': always}\n"


@pytest.mark.parametrize("how", ["shut", *(pytest.param(each, marks=pytest.mark.slow) for each in ("flood", "crash"))])
async def test_a_rollout_whose_server_is_lost_is_never_scored(tmp_path: Path, how: str) -> None:
    async with opened(make_workdir(tmp_path / "w", ODD, rewards=REWARDS), servers=2) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        (said,) = await asyncio.gather(env.run_tool("a", how), return_exceptions=True)
        assert {"flood": "floods its output", "crash": "exit code 3", "shut": ""}[how] in str(said)
        if how == "shut":  # that the output was closed comes to light a moment after its last answer
            with pytest.raises(McpError):
                await env.run_tool("a", "well")
        with pytest.raises(McpError, match="'probe'"):
            await env.compute_reward("a", [], {})
        assert await env.run_tool("b", "well") == "well"
        assert await env.compute_reward("b", [], {}) == {"always": 1.0}


async def test_functions_of_this_process_score_no_lost_rollout_either(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(ODD)
    servers = {"probe": {"command": "python", "args": [str(script)]}}
    env = ParallelMcpEnv.from_servers(servers, rewards={"always": lambda **given: 1.0}, num_servers=1)
    try:
        await env.init_rollout("a")
        await env.run_tool("a", "shut")
        with pytest.raises(McpError, match="closed its output"):
            await env.run_tool("a", "well")
        with pytest.raises(McpError, match="closed its output"):
            await env.compute_reward("a", [], {})
    finally:
        await env.shutdown()


async def test_text_that_is_not_utf_8_is_read_as_well_as_it_can_be(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w", ODD, rewards=REWARDS), servers=1) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "odd") == "caf\ufffd"


class Pipes:
    """A session with a server that this test plays."""

    def __init__(self) -> None:
        self._stdin, self._stdout = os.pipe(), os.pipe()
        self.session = StdioSession("it")

    async def open(self) -> StdioSession:
        await self.session.connect(os.fdopen(self._stdin[1], "wb", 0), os.fdopen(self._stdout[0], "rb", 0))
        os.set_blocking(self._stdin[0], False)
        return self.session

    def heard(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in os.read(self._stdin[0], 1 << 20).splitlines()]
        except BlockingIOError:
            return []

    def say(self, data: bytes) -> None:
        os.write(self._stdout[1], data)

    async def close(self) -> None:
        await self.session.close()
        for fd in (self._stdin[0], self._stdout[1]):
            os.close(fd)


async def test_a_flood_is_cut_before_others_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = Pipes()
    session = await pipes.open()
    noise = b"x\n" * 131_072  # one read of a pipe that is full
    began = process_time()
    for _ in range(200):
        session.data_received(noise)
    assert process_time() - began < 1.0
    assert "floods" in await asyncio.wait_for(session.failed, 60)
    await pipes.close()


async def test_chatter_within_reason_and_late_answers_are_no_flood() -> None:
    pipes = Pipes()
    session = await pipes.open()
    session.data_received(b"Welcome!\n" * 2_000)
    with pytest.raises(NoAnswer):
        await session.request("tools/call", {"name": "slow"}, 0.01)
    late = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "y" * (6 << 20)}}).encode()
    session.data_received(late + b"\n")
    assert session.lost is None
    await pipes.close()


async def test_what_a_process_prints_without_end_is_read_slowly() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    _, tail = await asyncio.get_running_loop().connect_read_pipe(OutputTail, os.fdopen(read, "rb", 0))
    taken, until = 0, monotonic() + 1.0
    while monotonic() < until:
        try:
            taken += os.write(write, b"trouble\n" * 4_096)
        except BlockingIOError:
            await asyncio.sleep(0)
    assert taken < 16 << 20
    assert len(tail.lines) == TAIL_LINES
    assert set(tail.lines) == {"trouble"}
    tail.close()
    os.close(write)


async def test_a_server_that_hangs_costs_little_and_is_then_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmax.envs.mcp.client.mcp_session.PROBE_SECONDS", 0.05)
    pipes = Pipes()
    session = await pipes.open()
    with pytest.raises(NoAnswer):
        await session.call("slow", {}, 0.1)
    began = monotonic()
    for _ in range(MOST_UNANSWERED - 1):
        with pytest.raises(NoAnswer, match="not sent"):
            await session.call("slow", {}, 30.0)
    with pytest.raises(McpError, match="neither calls nor pings"):
        await session.call("slow", {}, 30.0)
    assert monotonic() - began < 30
    assert session.failed.done()
    assert [each["method"] for each in pipes.heard()].count("tools/call") == 1
    await pipes.close()


async def test_a_server_that_was_only_slow_is_spoken_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = Pipes()
    session = await pipes.open()
    with pytest.raises(NoAnswer):
        await session.call("slow", {}, 0.05)
    calling = asyncio.ensure_future(session.call("quick", {}, 30.0))
    answered: set[int] = set()
    while not calling.done():
        for message in pipes.heard():
            if "id" in message and message["id"] > 1 and message["id"] not in answered:
                answered.add(message["id"])
                pipes.say(
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}).encode() + b"\n"
                )
        await asyncio.sleep(0.01)
    assert calling.result() == {"content": []}
    await pipes.close()


async def test_a_server_that_does_not_read_is_ended_before_it_costs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmax.limits.MCP_MESSAGE_BYTES", 4 << 20)
    pipes = Pipes()
    session = await pipes.open()
    for _ in range(10):
        with pytest.raises(McpError):
            await session.request("tools/call", {"text": "x" * (1 << 20)}, 0.01)
    assert "does not read its input" in session.failed.result()
    await pipes.close()


async def test_the_last_lines_of_a_server_over_http_are_told(tmp_path: Path) -> None:
    port = "${{ port }}"
    server = {"command": "python", "args": ["server.py", port], "url": f"http://127.0.0.1:{port}/mcp"}
    async with opened(make_workdir(tmp_path / "w", PROBE, json.dumps({"mcpServers": {"probe": server}})), 1) as env:
        await env.init_rollout("a")
        with pytest.raises(McpError, match=r"exit code 4(.|\n)*badly wrong"):
            await env.run_tool("a", "crash", code=4)
