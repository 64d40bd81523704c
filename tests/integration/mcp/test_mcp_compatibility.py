"""Servers as they are in the wild: odd names, no tools, redirects, certificates, repositories."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmax.envs.mcp.agent.server_set import Tool, _named
from benchmax.envs.mcp.client.content import as_tool_result
from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.mcp.packed_workdir import ignored_names, pack, unpack
from benchmax.envs.mcp.server_config import parse_config
from benchmax.errors import EnvDefinitionError, McpError
from mcp_world import PROBE, make_workdir, opened

LONG = "a_very_long_name_" * 5 + "of_90"
SERVER = """
import json, os, sys
names = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        about = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}, "serverInfo": {"name": "s"}}
        reply["result"] = about
    elif method == "tools/list" and names:
        reply["result"] = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif method == "tools/call":
        reply["result"] = {"content": [{"type": "text", "text": params["name"]}]}
    elif method == "resources/read":
        reply["result"] = {"contents": [{"uri": params["uri"], "text": "of the resource"}]}
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(reply), flush=True)
"""
REWARDS = """
async def called(mcp_client, **kwargs):
    return float((await mcp_client.call_tool("a.b")).text == "a.b")
async def read(mcp_client, **kwargs):
    return float((await mcp_client.read_resource("x:y"))[0]["text"] == "of the resource")
reward_functions = {"called": called, "read": read}
"""


def config(**servers: list[str]) -> str:
    made = {name: {"command": "python", "args": ["server.py", json.dumps(tools)]} for name, tools in servers.items()}
    return json.dumps({"mcpServers": made})


async def test_names_that_model_interfaces_refuse_are_changed_and_changed_back(tmp_path: Path) -> None:
    tools = ["plain", "a.b", "a_b", "ns/tool", LONG, "a:b c", "zähle", "数", "字"]
    workdir = make_workdir(tmp_path / "w", SERVER, config(it=tools), REWARDS)
    async with opened(workdir, servers=1) as env:
        names = [tool.name for tool in await env.list_tools()]
        assert names[0] == "plain"
        assert names[2:4] == ["a_b", "ns_tool"]
        assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)
        assert len(set(names)) == 9
        await env.init_rollout("a")
        assert [await env.run_tool("a", name) for name in names] == tools
        assert await env.run_tool("a", "ns/tool") == "ns/tool"
        assert await env.compute_reward("a", [], {}) == {"called": 1.0, "read": 1.0}


async def test_tools_are_allowed_and_parsed_under_both_of_their_names(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w", SERVER, config(it=["a.b", "other"]), REWARDS)
    async with opened(workdir, 1, allowed_tools=["a.b"], output_parsers={"a.b": str.upper}) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "a_b") == "A.B"
        assert [tool.name for tool in await env.list_tools()] == ["a_b"]


async def test_prefixes_that_make_two_names_one(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w", SERVER, config(a=["b_x"], a_b=["x"]), REWARDS)
    async with opened(workdir, servers=1) as env:
        first, second = [tool.name for tool in await env.list_tools()]
        await env.init_rollout("a")
        assert (first, await env.run_tool("a", first)) == ("a_b_x", "b_x")
        assert second.startswith("a_b_x_")
        assert await env.run_tool("a", second) == "x"


def test_a_name_of_its_own_comes_before_a_changed_one() -> None:
    tools = [Tool(name, 0, name, "", None, False, False, listed=name) for name in ("a.b", "a/b", "a_b")]
    named = _named(tools)
    assert [tool.own_name for tool in named.values()] == ["a.b", "a/b", "a_b"]
    assert named["a_b"].own_name == "a_b"


async def test_a_server_of_resources_alone_has_no_tools(tmp_path: Path) -> None:
    rewards = REWARDS.replace('"called": called, ', "")
    async with opened(make_workdir(tmp_path / "w", SERVER, config(it=[]), rewards), servers=1) as env:
        assert await env.list_tools() == []
        await env.init_rollout("a")
        assert await env.compute_reward("a", [], {}) == {"read": 1.0}


async def test_a_redirect_within_a_server_is_followed_and_no_other() -> None:
    seen: list[str] = []

    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/mcp/"})

    async def away(request: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": "http://elsewhere.test/mcp"})

    async def loop(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/loop"})

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Key", ""))
        return web.json_response({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": {"ok": 1}})

    app = web.Application()
    app.add_routes(
        [web.post("/mcp", moved), web.post("/mcp/", answer), web.post("/away", away), web.post("/loop", loop)]
    )
    async with TestServer(app) as server:

        async def ask(path: str) -> Any:
            session = HttpSession("it", str(server.make_url(path)), {"Key": "secret"})
            try:
                return [await session.request("tools/list", {}, 60.0) for _ in range(2)]
            finally:
                await session.close()

        assert await ask("/mcp") == [{"ok": 1}, {"ok": 1}]
        assert seen == ["secret", "secret"]
        with pytest.raises(McpError, match=r"'it' redirects to http://elsewhere.test/mcp.*write it as its url"):
            await ask("/away")
        with pytest.raises(McpError, match="without end"):
            await ask("/loop")


def test_a_transport_of_the_past_is_told() -> None:
    for key in ("type", "transport"):
        with pytest.raises(EnvDefinitionError, match=r"server 'it' has the .*'sse'.*streamable HTTP"):
            parse_config({"mcpServers": {"it": {key: "sse", "url": "http://x/sse"}}}, "mcp_config.yaml")
    parse_config({"mcpServers": {"it": {"type": "streamable-http", "url": "http://x/mcp"}}}, "mcp_config.yaml")


async def test_certificates_of_the_machine_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("certificates")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(bundle))
    async with opened(make_workdir(tmp_path / "w", PROBE), servers=1) as env:
        await env.init_rollout("a")
        assert json.loads(await env.run_tool("a", "variables"))["NODE_EXTRA_CA_CERTS"] == str(bundle)
        assert await env.run_tool("a", "read", path=str(bundle)) == "certificates"


def test_a_repository_in_a_workdir_travels_and_the_workdirs_own_does_not(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w")
    for folder in (workdir, workdir / "repository"):
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text("ref")
    assert ".git" in ignored_names(str(workdir), os.listdir(workdir))
    assert ignored_names(str(workdir / "repository"), [".git"]) == set()
    (tmp_path / "there").mkdir()
    unpack(pack(workdir), tmp_path / "there")
    assert (tmp_path / "there" / "repository" / ".git" / "HEAD").is_file()
    assert not (tmp_path / "there" / ".git").exists()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"content": [], "structuredContent": {"result": []}}, "[]"),
        ({"content": [{"type": "text", "text": ""}], "structuredContent": {"result": ""}}, ""),
        ({"content": [], "structuredContent": {"result": ""}}, ""),
        ({"content": []}, ""),
        ({"structuredContent": {"a": 1}}, '{"a": 1}'),
    ],
)
def test_empty_lists_and_texts_are_shown_as_they_are(raw: dict[str, Any], text: str) -> None:
    assert as_tool_result(raw).text == text


async def test_a_variable_of_the_machine_in_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLS_OF_IT", '["from_the_variable"]')
    servers = {"it": {"command": "python", "args": ["server.py", "${TOOLS_OF_IT}"]}}
    workdir = make_workdir(tmp_path / "w", SERVER, json.dumps({"mcpServers": servers}), REWARDS)
    async with opened(workdir, servers=1) as env:
        assert [tool.name for tool in await env.list_tools()] == ["from_the_variable"]


def test_a_shells_own_variables_and_escaped_ones_stay() -> None:
    raw = {"command": "sh", "args": ["-c", "echo ${ANY}"], "env": {"A": "$${ANY}"}}
    (spec,) = parse_config({"mcpServers": {"it": raw}}, "config")
    assert spec.with_variables({}).args == ("-c", "echo ${ANY}")
    assert spec.with_variables({}).env == {"A": "${ANY}"}
    (spec,) = parse_config({"mcpServers": {"it": {"command": "node", "args": ["${ANY}"]}}}, "config")
    with pytest.raises(EnvDefinitionError, match=r"'it': args names \$\{ANY\}, which is not set"):
        spec.with_variables({})
