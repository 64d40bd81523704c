"""Widely used MCP servers from PyPI and npm, unmodified, and a trial that each goes through.

They are other servers than those of mcp_peers.py, and need neither an account nor the network, or start without. Each
is installed once, by itself, into .cache/mcp-popular (or $BENCHMAX_TEST_CACHE/mcp-popular). The trial is the same for
all: `benchmax mcp inspect`, two rollouts at once that do not see one another, a reset that forgets, a release that
leaves no process.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from benchmax.cli.app import app
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.types import ToolResult
from mcp_peers import cache_folder, ensure, node_home
from mcp_world import descendants, make_workdir, opened, wait_until_gone

Call = tuple[str, dict[str, Any]]
HERE, PAGE = "$WORKSPACE", "$PAGE"
"""In a call: the rollout's own directory, and the address of a page on this machine."""
MCP1 = "mcp<2"
"""For packages that ask for any mcp and were written for the first."""


@dataclass(frozen=True, slots=True)
class Popular:
    """A server, how to change what it knows, and where that shows; without a change, what a call says of it."""

    pin: str
    program: str
    """A console script, or for npm a file of the package."""
    look: Call
    shows: str
    changes: tuple[Call, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    url: str | None = None
    also: tuple[str, ...] = ()
    npm: bool = False
    needs: str | None = None
    """A program of the machine."""
    habit: str = ""
    """What of it may go wrong in a pool."""

    @property
    def package(self) -> str:
        return self.pin.rpartition("@")[0] if self.npm else self.pin.partition("==")[0]

    @property
    def version(self) -> str:
        return self.pin.rpartition("@")[2] if self.npm else self.pin.partition("==")[2]

    @property
    def folder(self) -> str:
        return ("npm-" if self.npm else "pypi-") + self.package.replace("/", "_").replace("@", "")

    def config(self, installed: Path) -> dict[str, Any]:
        """As mcpServers has it."""
        more: dict[str, Any] = {"env": self.env, "start_seconds": 60}
        if self.url is not None:
            more["url"] = self.url
        if not self.npm:
            return {"command": str(installed / "bin" / self.program), "args": list(self.args), **more}
        script = installed / "node_modules" / self.package / self.program
        return {"command": str(node_home() / "bin" / "node"), "args": [str(script), *self.args], **more}


def _run(code: str) -> Call:
    return "run_python_code", {"code": code}


_THOUGHT = {"thought": "mine", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}
_MINE = "data:text/html,<title>mine</title>"
_SHEET = {"fileAbsolutePath": f"{HERE}/mine.xlsx"}
_CHROMIUM = shutil.which("chromium") or "chromium"

POPULAR = (
    Popular(
        "mcp-server-fetch==2026.10.24", "mcp-server-fetch", ("fetch", {"url": PAGE}), "A page of this machine",
        args=("--allow-private-ips", "--ignore-robots-txt"), habit="asks the network",
    ),
    Popular(
        "mcp-python-interpreter==1.2.3", "mcp-python-interpreter", _run("import os; print(os.listdir('.'))"),
        "mine.txt", (_run("open('mine.txt', 'w').write('x'); print(1)"),), also=(MCP1,),
        habit="reads cwd and arguments at import",
    ),
    Popular(
        "mcp-alchemy==2026.10.15.202659", "mcp-alchemy", ("all_table_names", {}), "mine",
        (("execute_query", {"query": "CREATE TABLE mine (x INT)"}),),
        env={"DB_URL": f"sqlite:///{'${{ workspace }}'}/it.db"}, habit="reads a variable at import",
    ),
    Popular(
        "office-word-mcp-server==1.1.11", "word_mcp_server", ("list_available_documents", {}), "mine.docx",
        (("create_document", {"filename": "mine.docx"}),), habit="fastmcp, which keeps files in HOME",
    ),
    Popular(
        "office-powerpoint-mcp-server==2.0.7", "ppt_mcp_server", ("list_presentations", {}), "presentation_1",
        (("create_presentation", {}),), also=(MCP1,), habit="remembers in memory alone",
    ),
    Popular(
        "arxiv-mcp-server==0.8.2", "arxiv-mcp-server", ("list_watches", {}), "mine",
        (("watch_topic", {"topic": "mine"}),), args=("--storage-path", "${{ workspace }}/papers"),
        habit="reads arguments",
    ),
    Popular(
        "mcp-text-editor==1.0.2", "mcp-text-editor",
        ("get_text_file_contents", {"files": [{"file_path": f"{HERE}/mine.txt", "ranges": [{"start": 1}]}]}), "milk",
        (
            (
                "edit_text_file_contents",
                {
                    "files": [
                        {
                            "path": f"{HERE}/mine.txt", "file_hash": "",
                            "patches": [{"start": 1, "contents": "milk\n", "range_hash": ""}],
                        }
                    ]
                },
            ),
        ),
        also=(MCP1,), habit="whole paths in calls",
    ),
    Popular(
        "mcp-shell-server==1.1.14", "mcp-shell-server", ("shell_execute", {"command": ["ls"]}), "mine.txt",
        (("shell_execute", {"command": ["touch", "mine.txt"]}),), env={"ALLOW_COMMANDS": "ls,touch"},
        habit="runs programs",
    ),
    Popular(
        "cli-mcp-server==0.2.5", "cli-mcp-server", ("run_command", {"command": "ls"}), "mine.txt",
        (("run_command", {"command": "touch mine.txt"}),), also=(MCP1,),
        env={"ALLOWED_DIR": "${{ workspace }}", "ALLOWED_COMMANDS": "all", "ALLOWED_FLAGS": "all"},
        habit="reads variables at import, runs programs",
    ),
    Popular(
        "mcp-server-motherduck==1.1.0", "mcp-server-motherduck", ("list_tables", {}), '"mine"',
        (("execute_query", {"sql": "CREATE TABLE mine (x INT)"}),),
        args=("--db-path", "${{ workspace }}/it.duckdb", "--read-write"), habit="starts a thread at import (DuckDB)",
    ),
    Popular(
        "mcp-obsidian==0.2.3", "mcp-obsidian", ("obsidian_list_files_in_vault", {}), "Connection refused",
        env={"OBSIDIAN_API_KEY": "none"}, habit="fails at import without its variable",
    ),
    Popular(
        "mcp-atlassian==0.23.1", "mcp-atlassian", ("jira_search", {"jql": "text"}), "Connection refused",
        env={"JIRA_URL": "http://127.0.0.1:9", "JIRA_USERNAME": "me", "JIRA_API_TOKEN": "none"},
        habit="63 tools, fastmcp",
    ),
    Popular(
        "blender-mcp==2.0.0", "blender-mcp", ("get_addon_status", {}), "Could not connect to Blender",
        habit="writes an id to HOME",
    ),
    Popular(
        "awslabs.aws-documentation-mcp-server==1.2.3", "awslabs.aws-documentation-mcp-server",
        ("search_documentation", {"search_phrase": "bucket"}), "search_results", habit="loguru, which reads HOME",
    ),
    Popular(
        "@modelcontextprotocol/server-sequential-thinking@2026.8.31", "dist/index.js",
        ("sequentialthinking", _THOUGHT), '"thoughtHistoryLength": 2', (("sequentialthinking", _THOUGHT),), npm=True,
        habit="remembers in memory alone",
    ),
    Popular(
        "@upstash/context7-mcp@4.1.1", "dist/index.js",
        ("resolve-library-id", {"libraryName": "react", "query": "hooks"}), "fetch failed", npm=True,
        habit="asks the network",
    ),
    Popular(
        "@playwright/mcp@0.0.83", "cli.js", ("browser_tabs", {"action": "list"}), "mine",
        (("browser_navigate", {"url": _MINE}),), npm=True, needs="chromium",
        args=("--headless", "--isolated", "--no-sandbox", "--executable-path", _CHROMIUM), habit="starts a browser",
    ),
    Popular(
        "chrome-devtools-mcp@1.11.0", "build/src/bin/chrome-devtools-mcp.js", ("list_pages", {}), "mine",
        (("new_page", {"url": _MINE}),), npm=True, needs="chromium",
        args=("--headless", "--isolated", "--executablePath", _CHROMIUM, "--chromeArg=--no-sandbox"),
        habit="starts a browser and a program that detaches",
    ),
    Popular(
        "@negokaz/excel-mcp-server@0.12.0", "dist/launcher.js", ("excel_describe_sheets", _SHEET), "no such file",
        npm=True, habit="a Go program behind a Node launcher",
    ),
    Popular(
        "@eslint/mcp@0.3.13", "src/mcp-cli.js", ("lint-files", {"filePaths": [f"{HERE}/mine.js"]}), "mine.js",
        npm=True, habit="looks for settings from cwd upwards",
    ),
    Popular(
        "mcp-server-code-runner@0.1.8", "dist/cli.js",
        ("run-code", {"code": "import os; print(os.listdir('.'))", "languageId": "python"}), "mine.txt",
        (("run-code", {"code": "open('mine.txt', 'w')", "languageId": "python"}),), npm=True,
        habit="one fixed name in the temporary folder",
    ),
    Popular(
        "@kazuph/mcp-taskmanager@1.1.1", "dist/index.js", ("list_requests", {}), "mine",
        (
            ("request_planning", {"originalRequest": "mine", "tasks": [{"title": "t", "description": "d"}]}),
        ),
        npm=True, habit="keeps its state in HOME",
    ),
    Popular(
        "figma-developer-mcp@0.13.2", "dist/bin.js", ("get_figma_data", {"fileKey": "abcdefgh"}), "fetch failed",
        args=("--figma-api-key", "none", "--port", "${{ port }}"), url="http://127.0.0.1:${{ port }}/mcp", npm=True,
        habit="speaks HTTP",
    ),
    Popular(
        "@notionhq/notion-mcp-server@2.5.2", "bin/cli.mjs", ("API-get-self", {}), "ENOTFOUND",
        env={"NOTION_TOKEN": "ntn_none"}, npm=True, habit="tools made from an API description",
    ),
    Popular(
        "@modelcontextprotocol/server-github@2025.4.8", "dist/index.js", ("search_repositories", {"query": "x"}),
        "fetch failed", npm=True, habit="an SDK of 2024",
    ),
)  # fmt: skip


def install(server: Popular) -> tuple[Path, str | None]:
    """Where the server is, and why not, if it cannot be fetched."""
    with cache_folder("mcp-popular") as folder:
        place = folder / server.folder
        return place, ensure(place, (server.pin, *server.also), npm=server.npm)


@dataclass(slots=True)
class Outcome:
    """What was seen of one server."""

    tools: int = 0
    start_ms: float = 0.0
    forked: str = ""
    isolated: bool = False
    forgotten: bool = False
    left: int = 0


def trial(server: Popular, installed: Path, folder: Path) -> Outcome:
    """Put a server through all that a pool does with it; AssertionError names what it saw."""
    config = json.dumps({"mcpServers": {"it": server.config(installed)}})
    workdir = make_workdir(folder / "w", config=config)
    shown = CliRunner().invoke(app, ["mcp", "inspect", str(workdir), "--json"], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    told, outcome = json.loads(shown.stdout), Outcome()
    assert server.look[0] in {tool["name"] for tool in told["tools"]}
    assert (told["unread"], told["left_out"]) == ({}, {})
    outcome.tools = len(told["tools"])
    anew = told["not_preloaded"].get("it", {})
    outcome.forked = "run" if server.npm or told["not_forked"] else f"forked, {len(anew)} anew" if anew else "forked"
    before = set(descendants(os.getpid()))
    with _page() as page:
        started = asyncio.run(_rollouts(server, workdir, page, outcome))
    left = wait_until_gone(started | (set(descendants(os.getpid())) - before))
    outcome.left = len(left)
    assert left == []
    return outcome


async def _rollouts(server: Popular, workdir: Path, page: str, outcome: Outcome) -> set[int]:
    """Two rollouts, side by side; gives the processes that were started."""
    async with opened(workdir, servers=2, spares=0) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        started = set(descendants(os.getpid()))
        places = {rollout: Path(env._pool.leases[rollout].workspace) for rollout in "ab"}
        for change in server.changes:
            await _say(env, "a", change, page)
        in_a, in_b = [await _say(env, rollout, server.look, page) for rollout in "ab"]
        assert server.shows in in_a, in_a
        assert (server.shows in in_b) == (not server.changes), in_b
        await env.copy_content_to_workspace("a", "x", "marker")
        assert not (places["b"] / "marker").exists()
        outcome.isolated = places["a"] != places["b"]
        pids = set((await env.state())[0]["pids"])
        started |= set(descendants(os.getpid()))
        await env.reset_rollout("a")
        again = await _say(env, "a", server.look, page)
        assert (server.shows in again) == (not server.changes), again
        assert wait_until_gone(pids - set((await env.state())[0]["pids"])) == []
        outcome.forgotten = await _is_gone(places["a"].parent)
        outcome.start_ms = (await env.state())[0]["start"]["p50_ms"]
        started |= set(descendants(os.getpid()))
        pids |= set((await env.state())[0]["pids"])
        await asyncio.gather(env.release_rollout("a"), env.release_rollout("b"))
        assert wait_until_gone(pids) == []
    assert outcome.forgotten
    return started - {os.getpid()}


async def _say(env: ParallelMcpEnv, rollout: str, call: Call, page: str) -> str:
    text = json.dumps(call[1]).replace(HERE, env._pool.leases[rollout].workspace).replace(PAGE, page)
    said = await env.run_tool(rollout, call[0], **json.loads(text))
    return said.text if isinstance(said, ToolResult) else str(said)


async def _is_gone(folder: Path) -> bool:
    """Whether a directory is removed, within a while."""
    for _ in range(500):
        if not folder.exists():
            return True
        await asyncio.sleep(0.02)
    return False


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"A page of this machine")

    def log_message(self, format: str, *given: Any) -> None:
        pass


@contextmanager
def _page() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
