"""Servers that speak the protocol in their own way: understood where it can be, and told in a line where not."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmax import limits
from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.mcp.client.mcp_session import Unreadable, messages_in, number_of
from benchmax.envs.mcp.workdir import find_config
from benchmax.errors import EnvDefinitionError, McpError, NotFoundError, ToolError
from mcp_world import make_workdir, node_of, opened

SERVER = """
import json, os, sys, time

def say(message):
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\n")

def about(version="2025-11-25"):
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "odd"}}

def answers(message):
    method = message["method"]
    if method == "initialize":
        return about()
    if method == "tools/list":
        return {"tools": [{"name": "it"}]}
    return {"content": [{"type": "text", "text": "well"}]}

def before(message):
    pass

{odd}
for line in sys.stdin:
    message = json.loads(line)
    before(message)
    if "id" in message and "method" in message:
        say({"id": message["id"], "result": answers(message)})
"""


def config_of(**more: Any) -> str:
    return json.dumps({"mcpServers": {"odd": {"command": "python", "args": ["server.py"], **more}}})


def workdir_of(folder: Path, odd: str, **more: Any) -> Path:
    return make_workdir(folder / "w", SERVER.replace("{odd}", odd), config_of(**more))


UNDERSTOOD = {
    "words before the first message": "os.write(1, b'Loading the model... ')",
    "a byte order mark": """
def say(message):
    os.write(1, b"\\xef\\xbb\\xbf" + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\r\\n")
""",
    "ids made texts": """
def say(message, once=say):
    once({**message, "id": str(message["id"])})
""",
    "ids made fractions": """
def say(message, once=say):
    once({**message, "id": float(message["id"])})
""",
    "messages in lists": """
def say(message):
    lists = [{"jsonrpc": "2.0", "method": "notifications/message"}, {"jsonrpc": "2.0", **message}]
    os.write(1, json.dumps(lists).encode() + b"\\n")
""",
    "every answer twice": """
def say(message, once=say):
    once(message)
    once(message)
""",
    "questions of its own first": """
refused = []
def before(message):
    if message.get("method") == "notifications/initialized":
        os.write(1, b'{"jsonrpc": "2.0", "id": "own", "method": "roots/list"}\\n')
    if message.get("id") == "own":
        refused.append(message["error"])
    assert refused or message.get("method") != "tools/call"
""",
    "a version of 2024": """
def answers(message, usual=answers):
    return about("2024-11-05") if message["method"] == "initialize" else usual(message)
""",
}


@pytest.mark.parametrize("odd", UNDERSTOOD.values(), ids=UNDERSTOOD)
async def test_what_can_be_understood_is(odd: str) -> None:
    async with node_of(SERVER.replace("{odd}", odd), config_of()) as node:
        lease = await node.open("a", 60)
        said = await node.leases.call(lease.token, "it", {}, 60)
        assert said["content"][0]["text"] == "well"


TOLD = {
    "lines before it dies at the first message after the handshake": (
        """
def before(message):
    if message.get("method") == "notifications/initialized":
        print("no licence", file=sys.stderr, flush=True)
        os._exit(4)
""",
        r"exit code 4\. Its last lines were:\nno licence",
    ),
    "its own lines of an error, and none of ours": (
        "import a_package_that_is_not_there",
        r"Its last lines were:\nTraceback \(most recent call last\):\n  File \".*server.py\", line \d+, in <module>\n"
        r"(.*\n)+ModuleNotFoundError",
    ),
    "a flood before the handshake": ("while True: os.write(1, b'noise ' * 100 + b'\\n')", "floods its output"),
    "half a line without end": ("while True: os.write(1, b'x' * 60_000)", r"more than 33,554,432 bytes"),
    "messages over several lines": (
        """
def say(message):
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}, indent=1).encode() + b"\\n")
""",
        r"""did not answer initialize.*not messages: '\{', ' "jsonrpc": "2.0",'""",
    ),
    "no version": ("def about():\n    return {}", "does not say which protocol"),
    "tools that are no list": (
        "def answers(message, usual=answers):\n"
        "    return {'tools': 5} if message['method'] == 'tools/list' else usual(message)",
        "'odd' does not list its tools",
    ),
}


@pytest.mark.parametrize(("odd", "words"), TOLD.values(), ids=TOLD)
async def test_what_cannot_be_is_told(monkeypatch: pytest.MonkeyPatch, odd: str, words: str) -> None:
    monkeypatch.setattr(limits, "MCP_START_TRIES", 1)
    seconds = 6 if "did not answer" in words else 60
    async with node_of(SERVER.replace("{odd}", odd), config_of(start_seconds=seconds)) as node:
        with pytest.raises(McpError, match=words):
            await node.open("a", 60)


@pytest.mark.parametrize("script", ["sever.py", "${{ sync_workdir }}/sever.py"])
async def test_a_script_that_is_not_there_is_told_in_a_line(tmp_path: Path, script: str) -> None:
    async with opened(workdir_of(tmp_path, "", args=["-u", script]), servers=1, spares=0) as env:
        with pytest.raises(EnvDefinitionError, match=r"'odd': there is no file sever\.py\. Correct its args\."):
            await env.init_rollout("a")


def test_a_configuration_of_another_client_is_told(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{}")
    with pytest.raises(NotFoundError, match=r"has a mcp\.json.*Rename it"):
        find_config(tmp_path)


async def test_an_answer_that_cannot_be_read_fails_its_call_and_at_once(tmp_path: Path) -> None:
    odd = """
def say(message, once=say):
    if "content" not in message["result"]:
        return once(message)
    os.write(1, b'{"jsonrpc": "2.0", "id": %d, "result": ' % message["id"] + b"[" * 200_000 + b"]" * 200_000 + b"}\\n")
"""
    async with opened(workdir_of(tmp_path, odd), servers=1, spares=0) as env:
        await env.init_rollout("a")
        began = monotonic()
        for _ in range(2):
            result = await env.run_tool("a", "it")
            assert result.is_error
            assert "cannot be read" in result.text
        assert monotonic() - began < limits.TOOL_SECONDS, "what is waited for in vain takes as long"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"id": None, "error": {"code": -32700, "message": "Parse error"}}, "Parse error"),
        ({"error": {"code": 1, "message": "", "data": {"quota": 3}}}, "{'quota': 3}"),
        ({"error": "out of paper"}, "out of paper"),
    ],
)
async def test_the_reason_of_an_error_is_told_wherever_it_is(error: dict[str, Any], words: str) -> None:
    odd = f"""
def say(message, once=say):
    if "content" in message["result"]:
        del message["result"]
        message.update({error!r})
    once(message)
"""
    async with node_of(SERVER.replace("{odd}", odd), config_of()) as node:
        lease = await node.open("a", 60)
        with pytest.raises(ToolError, match=words):
            await node.leases.call(lease.token, "it", {}, 60)


def test_lines_are_read_as_leniently_as_they_are_written() -> None:
    assert messages_in(b"") == messages_in(b"ready") == messages_in(b"[INFO] ready") == messages_in(b"{half") == []
    assert messages_in(b'100%\r{"jsonrpc": "2.0", "id": 3}') == [{"jsonrpc": "2.0", "id": 3}]
    assert messages_in(b'[1, {"id": 2}]') == [{"id": 2}]
    assert [number_of({"id": each}) for each in (1, "2", 3.0, True, None, "x", 4.5, "²")] == [1, 2, 3, *[None] * 5]
    for line, number in ((b'{"jsonrpc": "2.0", "id": 7, "result": ', 7), (b'{"jsonrpc": "2.0", "result": {', None)):
        with pytest.raises(Unreadable) as error:
            messages_in(line)
        assert error.value.number == number


# Over HTTP


def answer_of(message: dict[str, Any]) -> dict[str, Any]:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "it"}}
    result = {"initialize": about, "tools/list": {"tools": [{"name": "it"}]}}.get(message["method"], {"said": "well"})
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def as_list(message: dict[str, Any], request: web.Request) -> web.StreamResponse:
    return web.json_response([answer_of(message)])


async def not_utf_8(message: dict[str, Any], request: web.Request) -> web.StreamResponse:
    return web.Response(body=json.dumps({**answer_of(message), "x": "#"}).encode().replace(b"#", b"\xe9"))


async def events_with_text_ids(message: dict[str, Any], request: web.Request) -> web.StreamResponse:
    told = json.dumps({**answer_of(message), "id": str(message["id"])})
    return web.Response(text=f": hello\n\nid: 0\ndata:\n\ndata: {told}\n\n", content_type="text/event-stream")


async def page(message: dict[str, Any], request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>Sign in</html>", content_type="text/html")


async def forgets(message: dict[str, Any], request: web.Request) -> web.StreamResponse:
    if message["method"] == "tools/call":
        return web.json_response({"error": {"code": -32600, "message": "Session not found"}}, status=404)
    return web.json_response(answer_of(message), headers={"Mcp-Session-Id": "one"})


async def hangs_up(message: dict[str, Any], request: web.Request) -> web.StreamResponse:
    if "id" not in message:
        assert request.transport is not None
        request.transport.close()
    return web.json_response(answer_of(message))


async def asked_over_http(handler: Any) -> dict[str, Any]:
    async def handle(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if "id" not in message and handler is not hangs_up:
            return web.Response(status=202)
        return await handler({"id": 0, **message} if handler is not hangs_up else message, request)

    app = web.Application()
    app.router.add_post("/mcp", handle)
    async with TestServer(app) as server:
        session = HttpSession("it", str(server.make_url("/mcp")), {})
        try:
            await session.open(60)
            assert [tool["name"] for tool in await session.tools(60)] == ["it"]
            return await session.call("it", {}, 60)
        finally:
            await session.close()


@pytest.mark.parametrize("handler", [as_list, not_utf_8, events_with_text_ids])
async def test_over_http_what_can_be_understood_is(handler: Any) -> None:
    assert await asked_over_http(handler) == {"said": "well"}


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (page, r"'it' answered text/html without a message\. Check its url"),
        (forgets, "'it' has ended this rollout's session"),
        (hangs_up, "'it' broke the connection"),
    ],
)
async def test_over_http_what_cannot_be_is_told(handler: Any, words: str) -> None:
    with pytest.raises(McpError, match=words):
        await asked_over_http(handler)
