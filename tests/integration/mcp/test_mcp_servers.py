"""Servers of every kind: both eras of the protocol, Python or not, forked or run."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmax import limits
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.mcp.provisioners import LocalProvisioner
from benchmax.errors import McpError
from living import listening_port
from mcp_world import PROBE, make_workdir, node_of, opened

MODERN_ONLY = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    stamp = (message["params"].get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
    if message["method"] == "initialize":
        reply["error"] = {"code": -32601, "message": "no sessions here"}
    elif stamp != "2026-07-28":
        reply["error"] = {"code": -32022, "message": "which version?"}
    elif message["method"] == "server/discover":
        reply["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    elif message["method"] == "tools/list":
        page = message["params"].get("cursor")
        tool = {"name": "second" if page else "first", "inputSchema": {"type": "object"}}
        reply["result"] = {"tools": [tool, {"name": ""}], **({} if page else {"nextCursor": "2"})}
    else:
        reply["result"] = {"content": [{"type": "text", "text": message["params"]["name"]}]}
    print(json.dumps(reply), flush=True)
"""

NODE = """
let rest = '';
let asked = 0;
const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
process.stdin.on('data', (data) => {
  const lines = (rest + data).split('\\n');
  rest = lines.pop();
  for (const line of lines) {
    const { id, method, params } = JSON.parse(line);
    if (method === 'initialize') {
      say({ id: 'mine', method: 'roots/list' });
      say({ id, result: { protocolVersion: '2024-11-05', capabilities: { tools: {} }, serverInfo: { name: 'n' } } });
    } else if (method === 'tools/list') {
      say({ method: 'notifications/message', params: { data: 'hello' } });
      say({ id, result: { tools: [{ name: 'count', inputSchema: { type: 'object' } }] } });
    } else if (method === 'tools/call') {
      asked += 1;
      say({ id, result: { content: [{ type: 'text', text: `${asked} ${process.cwd()}` }] } });
    }
  }
});
"""


TASKS = """
import json, sys
tools = [
    {"name": "research", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
    {"name": "plain", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
    {"name": "nothing", "inputSchema": {"type": "object"}},
    {"name": 7},
]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params, result = message["method"], message.get("params") or {}, {}
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t"}}
    elif method == "tools/list":
        result = {"tools": tools}
    elif params.get("name") == "nothing":
        result = None
    elif "task" in params:
        result = {"task": {"taskId": "7", "status": "working", "pollInterval": 1000}}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "at once"}], "isError": params["name"] == "research"}
    elif method == "tasks/result":
        result = {"content": [{"type": "text", "text": "of task " + params["taskId"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def config(**server: Any) -> str:
    return json.dumps({"mcpServers": {"it": server}})


async def test_a_server_that_knows_only_the_new_protocol(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w", MODERN_ONLY, config(command="python", args=["server.py"]))
    async with opened(workdir, servers=1) as env:
        assert [tool.name for tool in await env.list_tools()] == ["first", "second"]
        await env.init_rollout("a")
        assert await env.run_tool("a", "second") == "second"


async def test_tools_that_run_only_as_tasks_and_answers_without_a_result(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w", TASKS, config(command="python", args=["server.py"]))
    async with opened(workdir, servers=1, spares=0) as env:
        assert [tool.name for tool in await env.list_tools()] == ["research", "plain", "nothing"]
        assert list((await env.state())[0]["left_out"]) == ["7"]
        await env.init_rollout("a")
        assert await env.run_tool("a", "research") == "of task 7"
        failed = await env.run_tool("a", "nothing")
        assert failed.is_error
        assert "without a result" in failed.text
        assert await env.run_tool("a", "plain") == "at once"


async def test_a_server_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    servers = {
        "big": {"command": "python", "args": ["server.py"], "memory": "1GB"},
        "small": {"command": "python", "args": ["server.py"]},
    }
    workdir = make_workdir(tmp_path / "w", config=json.dumps({"mcpServers": servers}))
    env = ParallelMcpEnv(workdir, LocalProvisioner(workdir, 2, spares=0, server_memory="200MB"))

    async def play(rollout: str, in_child: bool) -> None:
        await env.init_rollout(rollout)
        assert await env.run_tool(rollout, "big_hoard", megabytes=250, in_child=in_child, seconds=0.5) == "held"
        with pytest.raises(McpError, match="'small' used more than 200MB of memory"):
            await env.run_tool(rollout, "small_hoard", megabytes=250, in_child=in_child, seconds=50)

    try:
        await asyncio.gather(play("a", in_child=False), play("b", in_child=True))
    finally:
        await env.shutdown()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
async def test_node_lives_within_its_memory(tmp_path: Path) -> None:
    hungry = "asked += 1; if (asked > 1) { globalThis.kept = new Uint8Array(3e8).fill(1); return; }"
    workdir = make_workdir(tmp_path / "w", config=config(command="node", args=["server.js"], memory="256 MiB"))
    (workdir / "server.js").write_text(NODE.replace("asked += 1;", hungry))
    async with opened(workdir, servers=1, spares=0) as env:
        await env.init_rollout("a")
        assert (await env.run_tool("a", "count")).startswith("1 ")
        with pytest.raises(McpError, match="used more than 256 MiB"):
            await env.run_tool("a", "count")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
async def test_a_server_that_is_not_python(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w", config=config(command="node", args=["server.js"]))
    (workdir / "server.js").write_text(NODE)
    async with opened(workdir, servers=2) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        first, place = (await env.run_tool("a", "count")).split()
        assert (await env.run_tool("a", "count")).split() == ["2", place]
        assert (first, (await env.run_tool("b", "count")).split()[0]) == ("1", "1")


async def test_a_package_run_with_m_and_a_script_it_installed(tmp_path: Path) -> None:
    package = tmp_path / "site" / "probe_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import os\nIMPORTED_IN = os.getpid()\n")
    (package / "__main__.py").write_text("from . import tools\ntools.serve()\n")
    body = PROBE.replace('if __name__ == "__main__":', "def serve():")
    (package / "tools.py").write_text(body)
    script = tmp_path / "bin" / "probe-server"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom probe_package.tools import serve\nserve()\n")
    script.chmod(0o755)
    installed = {"env": {"PYTHONPATH": str(package.parent)}, "read": [str(package.parent)]}
    both = {
        "m": {"command": "python", "args": ["-m", "probe_package"], **installed},
        "s": {"command": str(script), **installed},
    }
    workdir = make_workdir(tmp_path / "w", config=json.dumps({"mcpServers": both}))
    async with opened(workdir, servers=1, spares=0) as env:
        await env.init_rollout("a")
        for name in "ms":
            assert json.loads(await env.run_tool("a", f"{name}_about"))["cwd"].endswith("workspace")
        assert (await env.state())[0]["not_forked"] == {}


@pytest.mark.parametrize("fork", [True, False])
async def test_modules_beside_the_server_see_the_rollouts_own_directory(tmp_path: Path, fork: bool) -> None:
    server = PROBE.replace("memory: list[str] = []", "import beside\nmemory: list[str] = [beside.HERE]")
    workdir = make_workdir(tmp_path / "w", server, config(command="python", args=["server.py"], fork=fork))
    (workdir / "beside.py").write_text("import os\nHERE = os.getcwd()\n")
    async with opened(workdir, servers=2, spares=0) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        for name in "ab":
            cwd = json.loads(await env.run_tool(name, "about"))["cwd"]
            assert await env.run_tool(name, "recall") == f"{cwd}|"


async def test_a_server_that_was_started_elsewhere_is_shared(tmp_path: Path) -> None:
    host = make_workdir(
        tmp_path / "host",
        config=config(command="python", args=["server.py", "${{ port }}"], url="http://127.0.0.1:${{ port }}/mcp"),
    )
    async with opened(host, servers=1, spares=0) as outer:
        await outer.init_rollout("keeps it up")
        env = ParallelMcpEnv.from_servers({"shared": {"url": await _url_of(outer)}}, num_servers=2)
        try:
            await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
            await env.run_tool("a", "remember", word="for all")
            assert (await env.run_tool("b", "recall")).startswith("for all")
        finally:
            await env.shutdown()


async def _url_of(env: ParallelMcpEnv) -> str:
    """Where the HTTP server of the one rollout listens: the only port its process has open."""
    pid = (await env.state())[0]["pids"][0]
    return f"http://127.0.0.1:{listening_port(pid)}/mcp"


async def test_an_unknown_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2031-01-01"}}), flush=True)
"""
    monkeypatch.setattr(limits, "MCP_START_TRIES", 1)
    async with node_of(server, config(command="python", args=["server.py"])) as node:
        with pytest.raises(McpError, match="2031-01-01"):
            await node.open("a", 60)


async def test_of_two_tools_of_one_name_the_first_is_taken(tmp_path: Path) -> None:
    server = MODERN_ONLY.replace('"second" if page else "first"', '"same"')
    workdir = make_workdir(tmp_path / "w", server, config(command="python", args=["server.py"]))
    async with opened(workdir, servers=1) as env:
        assert [tool.name for tool in await env.list_tools()] == ["same"]
        assert "the first one is taken" in (await env.state())[0]["left_out"]["same (again)"]


async def test_an_answer_that_is_too_large_ends_the_server(tmp_path: Path) -> None:
    server = MODERN_ONLY.replace(
        "print(json.dumps(reply), flush=True)",
        """
    if message["method"] == "tools/call":
        sys.stdout.write("x" * 40_000_000)
        sys.stdout.flush()
    print(json.dumps(reply), flush=True)""",
    )
    workdir = make_workdir(tmp_path / "w", server, config(command="python", args=["server.py"]))
    async with opened(workdir, servers=1) as env:
        await env.init_rollout("a")
        with pytest.raises(McpError, match="more than 33,554,432 bytes"):
            await env.run_tool("a", "first")


async def test_a_server_that_wraps_its_output_can_be_forked(tmp_path: Path) -> None:
    """As servers of mcp 1 do: what they wrap must know that it is a pipe."""
    wrapped = "import io, json, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')"
    server = MODERN_ONLY.replace("import json, sys", wrapped)
    workdir = make_workdir(tmp_path / "w", server, config(command="python", args=["server.py"]))
    async with opened(workdir, servers=1, spares=0) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "first") == "first"
        assert (await env.state())[0]["not_forked"] == {}


async def test_what_web_servers_say_beside_the_protocol() -> None:
    """An empty event before the answer is skipped, a refusal told by its status, and a shared server the end."""
    ended: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if "Authorization" not in request.headers:
            return web.json_response({"error": "invalid_token"}, status=401)
        number = (await request.json()).get("id")
        result = {"jsonrpc": "2.0", "id": number, "result": {"protocolVersion": "2025-11-25", "tools": []}}
        events = f"id: 1\nretry: 50\ndata: \n\n: still here\n\nid: 2\ndata: {json.dumps(result)}\n\n"
        return web.Response(text=events, content_type="text/event-stream", headers={"Mcp-Session-Id": "s1"})

    async def end(request: web.Request) -> web.Response:
        ended.append(request.headers["Mcp-Session-Id"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/mcp", answer)
    app.router.add_delete("/mcp", end)
    async with TestServer(app) as server:
        for headers in ({"Authorization": "x"}, {}):
            session = HttpSession("web", str(server.make_url("/mcp")), headers, shared=True)
            try:
                if headers:
                    await session.open(60)
                    assert await session.tools(60) == []
                else:
                    with pytest.raises(McpError, match=r"401 Unauthorized. Check its headers"):
                        await session.open(60)
            finally:
                await session.close()
    assert ended == ["s1"]
