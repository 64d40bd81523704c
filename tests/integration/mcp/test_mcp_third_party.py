"""Other people's servers as they are published: Python and Node, mcp 1 and 2, fastmcp, both transports, both eras."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.types import ToolResult
from benchmax.errors import McpError
from living import listening_port
from mcp_peers import Peers, install_peers
from mcp_world import descendants, make_workdir, opened, wait_until_gone

pytestmark = pytest.mark.timeout(400)  # the first one installs them

Server = dict[str, Any]
Call = tuple[str, dict[str, Any]]
TOKEN = "a-token-for-the-excel-server"


@pytest.fixture(scope="module")
def peers() -> Peers:
    return install_peers()


@asynccontextmanager
async def serving(folder: Path, servers: Mapping[str, Server], **options: Any) -> AsyncIterator[ParallelMcpEnv]:
    """An environment of these servers; when it is shut down, nothing that was started is left."""
    before = set(descendants(os.getpid()))
    workdir = make_workdir(folder / "w", config=json.dumps({"mcpServers": servers}), **options)
    async with opened(workdir, servers=2, spares=0) as env:
        yield env
        started = set(descendants(os.getpid())) - before
    assert started
    assert wait_until_gone(started) == []


async def tell(env: ParallelMcpEnv, rollout: str, call: Call, prefix: str = "") -> str:
    """What a tool says that is to succeed."""
    result = await env.run_tool(rollout, prefix + call[0], **call[1])
    assert not isinstance(result, ToolResult), result
    return result


async def fail(env: ParallelMcpEnv, rollout: str, call: Call, prefix: str = "") -> str:
    """What a tool says that is to fail."""
    result = await env.run_tool(rollout, prefix + call[0], **call[1])
    assert isinstance(result, ToolResult)
    assert result.is_error, result
    return result.text


# Servers that remember something


@dataclass(frozen=True, slots=True)
class Stateful:
    """A server, how to change what it knows, where that shows, and a call that it refuses."""

    server: Callable[[Peers], Server]
    changes: tuple[Call, ...]
    look: Call
    shows: str
    refused: Call
    words: str


ADA = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
EXCEL = (
    ("create_workbook", {"path": "sums.xlsx"}),
    ("write_range", {"path": "sums.xlsx", "sheet": "Sheet1", "at": "A1", "rows": [[6, 7], ["=A1*B1"]]}),
)
MISSING = ("read_range", {"path": "other.xlsx", "sheet": "Sheet1"})
AUTHOR = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
STATEFUL = {
    "sqlite": Stateful(
        lambda peers: peers.python("mcp-server-sqlite", "--db-path", "${{ workspace }}/it.db", group="python-mcp1"),
        (
            ("create_table", {"query": "CREATE TABLE mine (number INT)"}),
            ("write_query", {"query": "INSERT INTO mine VALUES (41)"}),
        ),
        ("list_tables", {}), "mine",
        ("read_query", {}), "'query' is a required property",
    ),
    "excel": Stateful(
        lambda peers: peers.python("excel-mcp-server", "stdio", env={"EXCEL_FILES_PATH": "${{ workspace }}"}),
        EXCEL, ("list_workbooks", {}), "sums.xlsx", MISSING, "does not exist",
    ),
    "excel-http": Stateful(
        lambda peers: peers.python(
            "excel-mcp-server", "streamable-http", "--allow-dir", "${{ workspace }}", "--port", "${{ port }}",
            url="http://127.0.0.1:${{ port }}/mcp",
            env={"EXCEL_MCP_AUTH_TOKEN": "${EXCEL_TOKEN}"}, headers={"Authorization": "Bearer ${EXCEL_TOKEN}"},
        ),
        EXCEL, ("list_workbooks", {}), "sums.xlsx", MISSING, "does not exist",
    ),
    "git": Stateful(
        lambda peers: peers.python("mcp-server-git", env=AUTHOR),
        (
            ("git_add", {"repo_path": ".", "files": ["a.txt"]}),
            ("git_commit", {"repo_path": ".", "message": "the first"}),
            ("git_create_branch", {"repo_path": ".", "branch_name": "mine"}),
        ),
        ("git_branch", {"repo_path": ".", "branch_type": "local"}), "mine",
        ("git_show", {"repo_path": ".", "revision": "no-such"}), "no-such",
    ),
    "memory": Stateful(
        lambda peers: peers.npm("memory", env={"MEMORY_FILE_PATH": "${{ workspace }}/graph.jsonl"}),
        (("create_entities", {"entities": [ADA]}),),
        ("read_graph", {}), "Ada",
        ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}), "Nobody not found",
    ),
    "filesystem": Stateful(
        lambda peers: peers.npm("filesystem", "${{ workspace }}"),
        (("create_directory", {"path": "deep"}), ("write_file", {"path": "deep/mine.txt", "content": "x"})),
        ("directory_tree", {"path": "."}), "mine.txt",
        ("read_text_file", {"path": "/etc/hostname"}), "outside allowed directories",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("sqlite", "excel", "git"), id="sqlite-excel-git", marks=pytest.mark.slow),
        pytest.param(("memory", "filesystem"), id="memory-filesystem"),
    ],
)
async def test_rollouts_side_by_side(names: tuple[str, ...], peers: Peers, tmp_path: Path) -> None:
    """What one rollout does no other sees, a reset forgets it, and a release leaves no process."""
    if "git" in names and shutil.which("git") is None:
        pytest.skip("needs git")
    async with serving(tmp_path, {name: STATEFUL[name].server(peers) for name in names}) as env:
        for rollout in "ab":
            await env.init_rollout(rollout)
            if "git" in names:
                await put_repository(env, rollout, tmp_path)
        for name in names:
            await _change(env, STATEFUL[name], f"{name}_")
        before = set((await env.state())[0]["pids"])
        await env.reset_rollout("a")
        if "git" in names:
            await put_repository(env, "a", tmp_path)
        for name in names:
            assert STATEFUL[name].shows not in await tell(env, "a", STATEFUL[name].look, f"{name}_")
        after = set((await env.state())[0]["pids"])
        assert (len(before), len(after), len(before & after)) == (2 * len(names), 2 * len(names), len(names))
        await asyncio.gather(env.release_rollout("a"), env.release_rollout("b"))
        assert wait_until_gone(before | after) == []
        assert (await env.state())[0]["not_forked"] == {}, "every Python server can be forked"


async def _change(env: ParallelMcpEnv, it: Stateful, prefix: str = "") -> None:
    """In rollout a, and not in b."""
    asked = {prefix + tool for tool, _ in (*it.changes, it.look, it.refused)}
    assert asked <= {tool.name for tool in await env.list_tools()}
    for change in it.changes:
        await tell(env, "a", change, prefix)
    assert it.shows in await tell(env, "a", it.look, prefix)
    assert it.shows not in await tell(env, "b", it.look, prefix)
    assert it.words in await fail(env, "a", it.refused, prefix)
    assert it.shows in await tell(env, "a", it.look, prefix), "a call that failed ends nothing"


async def put_repository(env: ParallelMcpEnv, rollout: str, tmp_path: Path) -> None:
    """A repository without a commit, and a file, in the rollout's workspace."""
    template = tmp_path / "template"
    if not template.exists():
        subprocess.run(["git", "init", "--quiet", "--template=", str(template)], check=True)
        for folder in ("refs", "objects"):
            (template / ".git" / folder / "keep").write_text("")  # empty folders do not travel
    for file in sorted(each for each in template.rglob("*") if each.is_file()):
        await env.copy_to_workspace(rollout, file, str(file.relative_to(template)))
    await env.copy_content_to_workspace(rollout, "one", "a.txt")


async def test_a_server_behind_a_token_over_http(peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variable and our header come from the machine; asked without them, in either era, it refuses."""
    monkeypatch.setenv("EXCEL_TOKEN", TOKEN)
    async with serving(tmp_path, {"excel": STATEFUL["excel-http"].server(peers)}) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        await _change(env, STATEFUL["excel-http"])
        before = (await env.state())[0]["pids"]
        for modern in (False, True):
            await _ask_over_http(listening_port(before[0]), modern)
        await env.reset_rollout("a")
        assert "sums.xlsx" not in await tell(env, "a", ("list_workbooks", {}))


async def _ask_over_http(port: int, modern: bool) -> None:
    """One server, asked in both eras: each version is stamped as it must be, or the server would refuse."""
    for headers, known in (({"Authorization": f"Bearer {TOKEN}"}, True), ({}, False)):
        session = HttpSession("excel", f"http://127.0.0.1:{port}/mcp", headers)
        session.modern = modern
        try:
            if not known:
                with pytest.raises(McpError, match="401"):
                    await session.tools(30)
                continue
            if modern:
                assert "2026-07-28" in (await session.request("server/discover", {}, 30))["supportedVersions"]
            else:
                await session.open(30)
            assert "list_workbooks" in {tool["name"] for tool in await session.tools(30)}
            assert not (await session.call("list_workbooks", {}, 30)).get("isError")
            assert (await session.call(*MISSING, 30))["isError"]
        finally:
            await session.close()


# Servers that do not

GATE = """
import json, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, text=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        error = {"code": -32601, "message": "no sessions here"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
    else:
        server.stdin.write(line)
        server.stdin.flush()
"""


async def test_time_in_both_eras(peers: Peers, tmp_path: Path) -> None:
    """Servers of mcp 2 speak both eras; one that lets no session begin is spoken to in the new one."""
    direct = peers.python("mcp-server-time", "--local-timezone", "Europe/Berlin")
    gate = {
        "command": "python",
        "args": ["${{ sync_workdir }}/server.py", direct["command"], *direct["args"]],
        "read": [str(Path(direct["command"]).parents[1])],
    }
    async with serving(tmp_path, {"old": direct, "new": gate}, server=GATE) as env:
        tools = {tool.name: tool for tool in await env.list_tools()}
        assert set(tools) == {
            f"{era}_{name}" for era in ("old", "new") for name in ("get_current_time", "convert_time")
        }
        await env.init_rollout("a")
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        for era in ("old_", "new_"):
            assert "Europe/Berlin" in json.dumps(tools[f"{era}convert_time"].input_schema), "arguments arrive"
            assert json.loads(await tell(env, "a", ("convert_time", asked), era))["time_difference"] == "+9.0h"
            assert "Nowhere/Land" in await fail(env, "a", ("get_current_time", {"timezone": "Nowhere/Land"}), era)


async def test_everything_over_both_transports(peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "from the machine")
    monkeypatch.setenv("NOT_FOR_SERVERS", "secret")
    variables = {"KEY": "${SHOP_KEY}", "PLACE": "${{ workspace }}"}
    web = {"url": "http://127.0.0.1:${{ port }}/mcp", "env": {**variables, "PORT": "${{ port }}"}}
    servers = {
        "pipe": peers.npm("everything", "stdio", env=variables),
        "web": peers.npm("everything", "streamableHttp", **web),
    }
    async with serving(tmp_path, servers) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        for prefix in ("pipe_", "web_"):
            assert await tell(env, "a", ("echo", {"message": "grüß"}), prefix) == "Echo: grüß"
            assert "expected number" in await fail(env, "a", ("get-sum", {"a": "two", "b": 3}), prefix)
            await _check_contents(env, prefix)
            slow = ("trigger-long-running-operation", {"duration": 0.2, "steps": 2})  # tells of its progress meanwhile
            sum_of = ("get-sum", {"a": 2, "b": 3})
            both = await asyncio.gather(tell(env, "a", slow, prefix), tell(env, "a", sum_of, prefix))
            assert both[0].startswith("Long running operation completed")
            assert both[1] == "The sum of 2 and 3 is 5."
            seen = [json.loads(await tell(env, rollout, ("get-env", {}), prefix)) for rollout in "ab"]
            assert [each["KEY"] for each in seen] == ["from the machine"] * 2
            assert seen[0]["PLACE"] != seen[1]["PLACE"]
            assert not {"NOT_FOR_SERVERS", "SHOP_KEY", "BENCHMAX_MCP_SECRET"} & {*seen[0], *seen[1]}


@pytest.mark.slow
async def test_everything_that_runs_as_a_task(peers: Peers, tmp_path: Path) -> None:
    web = {"url": "http://127.0.0.1:${{ port }}/mcp", "env": {"PORT": "${{ port }}"}}
    servers = {"pipe": peers.npm("everything", "stdio"), "web": peers.npm("everything", "streamableHttp", **web)}
    async with serving(tmp_path, servers) as env:
        await env.init_rollout("a")
        call = ("simulate-research-query", {"topic": "tea"})
        both = await asyncio.gather(tell(env, "a", call, "pipe_"), tell(env, "a", call, "web_"))
        assert all(each.startswith("# Research Report: tea") for each in both)


async def _check_contents(env: ParallelMcpEnv, prefix: str) -> None:
    """Images are kept as parts, everything else that is not text is described."""
    picture = await env.run_tool("a", f"{prefix}get-tiny-image")
    assert not picture.is_error
    assert "MCP logo" in picture.text
    (part,) = picture.parts
    kind, data = part["image_url"]["url"].split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data).startswith(b"\x89PNG")
    blob = await tell(env, "a", ("get-resource-reference", {"resourceType": "Blob", "resourceId": 1}), prefix)
    assert "[resource demo://resource/dynamic/blob/1, text/plain, about" in blob
    links = await tell(env, "a", ("get-resource-links", {"count": 2}), prefix)
    assert links.count("[resource ") == 2
    weather = await tell(env, "a", ("get-structured-content", {"location": "Chicago"}), prefix)
    assert "temperature" in json.loads(weather)
    assert await env.client("a").read_resource("demo://resource/dynamic/text/1")


# fastmcp

COUNTER = """
import sys
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image

mcp = FastMCP("counter")
count = 0

@mcp.tool
def add(number: int) -> int:
    global count
    if number < 0:
        raise ToolError("only upwards")
    count += number
    return count

@mcp.tool
def draw() -> Image:
    return Image(data=b"not really a picture", format="png")

if __name__ == "__main__":
    if len(sys.argv) > 1:
        mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
    else:
        mcp.run(show_banner=False)
"""


async def test_fastmcp_over_both_transports(peers: Peers, tmp_path: Path) -> None:
    """A server in an environment that knows nothing of benchmax, written for fastmcp."""
    url = "http://127.0.0.1:${{ port }}/mcp"
    servers = {
        "pipe": peers.python("python", "${{ sync_workdir }}/server.py"),
        "web": peers.python("python", "${{ sync_workdir }}/server.py", "${{ port }}", url=url),
    }
    async with serving(tmp_path, servers, server=COUNTER) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        for prefix in ("pipe_", "web_"):
            assert [await tell(env, rollout, ("add", {"number": 2}), prefix) for rollout in "aab"] == ["2", "4", "2"]
            assert "only upwards" in await fail(env, "a", ("add", {"number": -1}), prefix)
            picture = await env.run_tool("a", f"{prefix}draw")
            assert picture.parts[0]["image_url"]["url"].startswith("data:image/png;base64,")
        await env.reset_rollout("a")
        assert [await tell(env, "a", ("add", {"number": 1}), prefix) for prefix in ("pipe_", "web_")] == ["1", "1"]
        assert (await env.state())[0]["not_forked"] == {}


# Several at once

REWARDS = """
async def knows(ground_truth, mcp_client, **kwargs):
    return float(ground_truth in (await mcp_client.call_tool("people_read_graph")).text)

async def mixed_up(ground_truth, mcp_client, **kwargs):
    return float(ground_truth in (await mcp_client.call_tool("places_read_graph")).text)

def kept(ground_truth, workspace, **kwargs):
    return float(ground_truth in (workspace / "people.jsonl").read_text())

reward_functions = {"knows": knows, "mixed_up": mixed_up, "kept": kept}
"""


async def test_servers_of_one_workdir_share_its_files_and_not_their_names(peers: Peers, tmp_path: Path) -> None:
    """Three memories with the same nine tools, a database and a view on the files of all of them.

    A memory that is not told where to write writes beside its program, which would be one graph for all rollouts.
    """
    servers = {
        "people": peers.npm("memory", env={"MEMORY_FILE_PATH": "${{ workspace }}/people.jsonl"}),
        "places": peers.npm("memory", env={"MEMORY_FILE_PATH": "${{ workspace }}/places.jsonl"}),
        "nowhere": peers.npm("memory"),
        "files": peers.npm("filesystem", "${{ workspace }}"),
        "db": peers.python("mcp-server-sqlite", "--db-path", "${{ workspace }}/it.db", group="python-mcp1"),
    }
    async with serving(tmp_path, servers, rewards=REWARDS) as env:
        await env.init_rollout("a")
        names = [tool.name for tool in await env.list_tools()]
        assert len(names) == len(set(names))
        assert {"people_read_graph", "places_read_graph", "files_read_file", "db_list_tables"} <= set(names)
        await tell(env, "a", ("people_create_entities", {"entities": [ADA]}))
        await tell(env, "a", ("db_create_table", {"query": "CREATE TABLE mine (number INT)"}))
        listing = await tell(env, "a", ("files_list_directory", {"path": "."}))
        assert {"[FILE] people.jsonl", "[FILE] it.db"} <= set(listing.splitlines())
        if (await env.state())[0]["confined"]:
            said = (await fail(env, "a", ("nowhere_create_entities", {"entities": [ADA]}))).lower()
            assert "permission denied" in said or "read-only" in said
        assert "There is no tool named 'read_graph'" in await fail(env, "a", ("read_graph", {}))
        rewards = await env.compute_reward("a", [], {"ground_truth": "Ada"})
        assert rewards == {"knows": 1.0, "mixed_up": 0.0, "kept": 1.0}


async def test_packages_in_a_folder_that_is_closed(peers: Peers, tmp_path: Path) -> None:
    """Temporary folders are closed to servers, but not what the configuration names there, nor what that imports."""
    installed = peers.npm("filesystem", "${{ workspace }}")
    modules = next(each for each in Path(installed["args"][0]).parents if each.name == "node_modules")
    shutil.copytree(modules, tmp_path / "node_modules", symlinks=True)
    script = tmp_path / "node_modules" / Path(installed["args"][0]).relative_to(modules)
    env = ParallelMcpEnv.from_servers(
        {"files": {**installed, "args": [str(script), "${{ workspace }}"]}}, num_servers=1
    )
    try:
        await env.init_rollout("a")
        await env.copy_content_to_workspace("a", "milk", "list.txt")
        assert await env.run_tool("a", "read_text_file", path="list.txt") == "milk"
    finally:
        await env.shutdown()
