"""S12, S13: no rollout reaches another's files, variables, processes or token; no stranger reaches an agent."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.agent.workspace_files import Upload, open_download, path_parts
from benchmax.envs.mcp.provisioners import LocalProvisioner
from benchmax.sandbox.inside.landlock import version as landlock_version
from mcp_world import REFUSED, make_workdir, opened, pid_of

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no landlock")
SECRET = "a-secret-of-the-agent-alone"


async def about(env: ParallelMcpEnv, rollout: str) -> dict[str, str]:
    return json.loads(await env.run_tool(rollout, "about"))


# Between rollouts


@needs_landlock
async def test_a_server_reaches_neither_files_nor_processes_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    async with opened(make_workdir(tmp_path / "w"), servers=2) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        await env.run_tool("b", "remember", word="of b alone")
        a, b = await about(env, "a"), await about(env, "b")
        agent = env._pool.machines[0].agent.hello["pid"]

        async def refused(tool: str, **given: Any) -> None:
            assert await env.run_tool("a", tool, **given) in REFUSED

        await refused("read", path=f"{b['cwd']}/nonce")
        await refused("read", path=f"{a['cwd']}/../../{Path(b['cwd']).parent.name}/workspace/nonce")
        await refused("listing", path=b["cwd"])
        await refused("listing", path=str(Path(a["cwd"]).parents[1]))
        other = await pid_of(env, "b")
        await refused("listing", path=f"/proc/{other}/cwd/")
        await refused("listing", path="/dev/shm")
        await refused("listing", path="/tmp")
        await refused("write", path=f"{b['cwd']}/nonce", text="from a")
        await refused("write", path=f"{tmp_path}/outside", text="from a")
        for pid in (other, agent, os.getpid()):
            for file in ("environ", "mem", "maps", "cwd/nonce"):
                await refused("read", path=f"/proc/{pid}/{file}")
            await refused("signal", pid=int(pid))
        assert await env.run_tool("b", "recall") == "of b alone|of b alone"


@needs_landlock
async def test_a_server_reads_neither_the_rewards_nor_the_users_keys(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        workdir = Path(env._pool.machines[0].agent.address.removeprefix("unix:")).parent / "workdir"
        assert (await env.run_tool("a", "read", path=str(workdir / "server.py"))).startswith("\nimport json")
        for name in ("reward_fn.py", "mcp_config.yaml", "setup.sh"):
            assert await env.run_tool("a", "read", path=str(workdir / name)) == "PermissionError"
        assert await env.run_tool("a", "read", path=str(Path.home() / ".ssh" / "id_rsa")) != ""
        assert await env.run_tool("a", "write", path=str(workdir / "server.py"), text="") in REFUSED
        assert await env.run_tool("a", "write", path="here", text="x") == "written"


async def test_a_server_sees_few_variables_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("WEATHER_KEY", "for the server")
    config = "mcpServers:\n  probe: {command: python, args: [server.py], env: {KEY: '${WEATHER_KEY}'}}\n"
    async with opened(make_workdir(tmp_path / "w", config=config), servers=1, api_secret=SECRET) as env:
        await env.init_rollout("a")
        seen = json.loads(await env.run_tool("a", "variables"))
        token = env._pool.leases["a"].token
        assert seen["KEY"] == "for the server"
        assert "OPENAI_API_KEY" not in seen
        assert not [value for value in seen.values() if SECRET in value or token in value]
        assert SECRET not in await env.run_tool("a", "read", path="/proc/self/environ")


@pytest.mark.parametrize(("servers", "rollouts"), [(4, 24), pytest.param(8, 64, marks=pytest.mark.slow)])
async def test_every_rollout_reads_back_its_own_nonce(tmp_path: Path, servers: int, rollouts: int) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=servers, spares=2) as env:

        async def play(number: int) -> tuple[str, str, int]:
            name, nonce = f"r{number}", secrets.token_hex(8)
            await env.init_rollout(name)
            await env.run_tool(name, "remember", word=nonce)
            seen = await env.run_tool(name, "recall")
            pid = await pid_of(env, name)
            await env.release_rollout(name)
            return nonce, seen, pid

        played = await asyncio.gather(*map(play, range(rollouts)))
        assert [seen for _, seen, _ in played] == [f"{nonce}|{nonce}" for nonce, _, _ in played]
        assert len({pid for _, _, pid in played}) == rollouts, "a fresh process for each"


# The agent's doors


class Doors:
    """An agent on a port, two rollouts on it, and a client without any right."""

    def __init__(self, env: ParallelMcpEnv, address: str, http: aiohttp.ClientSession) -> None:
        self.env, self.url, self.http = env, f"http://{address}", http

    def token(self, rollout: str) -> str:
        return self.env._pool.leases[rollout].token

    async def ask(self, method: str, path: str, token: str = "", **options: Any) -> tuple[int, str]:
        headers = {**options.pop("headers", {})}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            return response.status, await response.text()

    async def upload(self, name: str, data: bytes, token: str) -> tuple[int, str]:
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("file", data, filename=name)
        return await self.ask("POST", "/upload", token, data=form)


def quiet_port() -> int:
    """A free one, below those that the system gives to everybody else."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    workdir = make_workdir(tmp_path / "w")
    port = quiet_port()
    env = ParallelMcpEnv(workdir, LocalProvisioner(workdir, 2, base_port=port, spares=0), api_secret=SECRET)
    await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
    async with aiohttp.ClientSession() as http:
        yield Doors(env, f"127.0.0.1:{port}", http)
    await env.shutdown()


async def test_only_the_rollouts_own_token_opens_it(doors: Doors) -> None:
    assert await doors.ask("GET", "/health") == (200, "OK")
    await doors.env.run_tool("a", "remember", word="of a")
    own, other = doors.token("a"), doors.token("b")
    assert await doors.ask("GET", "/download?file_path=nonce", own) == (200, "of a")
    assert (await doors.ask("GET", "/download?file_path=nonce", other))[0] == 404
    for token in ("", SECRET, own[:-1], own.upper(), "a", "null", "0" * 64):
        for method, path in (
            ("GET", "/download?file_path=nonce"), ("POST", "/upload"), ("POST", "/reset"), ("POST", "/mcp"),
            ("POST", "/compute_reward"),
        ):  # fmt: skip
            status, text = await doors.ask(method, path, token, json={} if method == "POST" else None)
            assert status == 401, (path, token)
            assert json.loads(text)["error"] == "unauthorized"
    for token in ("", own, SECRET[:-1], SECRET + "x"):
        assert (await doors.ask("GET", "/agent", token))[0] == 401
    claims = {"headers": {"X-Rollout-Id": "b"}}
    assert (await doors.ask("GET", "/download?file_path=nonce", own, **claims))[0] == 403
    body = {"completion": "", "ground_truth": "", "rollout_id": "b"}
    assert (await doors.ask("POST", "/compute_reward", own, json=body))[0] == 403


async def test_foreign_hosts_and_web_pages_are_refused_everywhere(doors: Doors) -> None:
    for host in ("evil.test", "127.0.0.1.evil.test", "evil.test:80", "", "localhost@evil", "127.0.0.1:x", "[::1"):
        for path in ("/health", "/agent", "/download?file_path=x"):
            status, _ = await doors.ask("GET", path, SECRET, headers={"Host": host})
            assert status in (400, 421), host
    for origin in ("http://evil.test", "null", "http://127.0.0.1", "file://"):
        for path in ("/health", "/agent", "/mcp"):
            assert (await doors.ask("GET", path, SECRET, headers={"Origin": origin}))[0] == 403
    async with doors.http.get(f"{doors.url}/health", headers={"Host": "localhost"}) as response:
        assert response.status == 200


async def test_files_cannot_leave_the_workspace(doors: Doors, tmp_path: Path) -> None:
    token = doors.token("a")
    workspace = Path(doors.env._pool.leases["a"].workspace)
    for name in ("../out", "a/../../out", "bytes/../../out", "..", ".", "a\\..\\out", "a/", "y" * 300):
        status, _ = await doors.upload(name, b"x", token)
        assert status == 400, name
    for name in (
        "../out",
        "a/../../out",
        "/etc/passwd",
        "..",
        ".",
        "a\\..\\out",
        "x\0y",
        "a/",
        "//etc/passwd",
        "y" * 300,
    ):
        for query in (name, name.replace(".", "%2e").replace("/", "%2f")):
            status, _ = await doors.ask("GET", "/download", token, params={"file_path": query})
            assert status in (400, 404), query
        with pytest.raises(ValueError, match=r"workspace|file"):
            await doors.env.copy_content_to_workspace("a", "x", name)
    body = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a\0b"\r\n\r\nx\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    status, said = await doors.ask("POST", "/upload", token, data=body, headers=headers)
    assert (status, json.loads(said)["error"]) == (400, "invalid_request")
    await doors.upload("/etc/out", b"x", token)  # its leading slash is dropped
    assert not Path("/etc/out").exists()
    assert (await doors.upload("notes/ok.txt", b"fine", token))[0] == 200
    assert (workspace / "notes" / "ok.txt").read_bytes() == b"fine"
    assert sorted(os.listdir(workspace.parent)) == ["home", "tmp", "workspace"]

    (tmp_path / "secret").write_text("of somebody else")
    (workspace / "link").symlink_to(tmp_path / "secret")
    (workspace / "folder").symlink_to(tmp_path)
    (workspace / "self").symlink_to("/proc/self")
    os.mkfifo(workspace / "pipe")
    for path in ("link", "folder/secret", "self/environ", "pipe", "notes"):
        assert (await doors.ask("GET", f"/download?file_path={path}", token))[0] == 404, path
    assert (await doors.upload("folder/secret", b"changed", token))[0] == 400
    assert (await doors.upload("link", b"changed", token))[0] == 200
    assert (tmp_path / "secret").read_text() == "of somebody else"
    assert not (workspace / "link").is_symlink()


async def test_sizes_are_limited(doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmax.limits.MCP_FILE_BYTES", 1000)
    with contextlib.closing(Upload(tmp_path, "a")) as file:
        file.write(b"x" * 1000)
        with pytest.raises(ValueError, match="1,000 bytes"):
            file.write(b"x")
    assert os.listdir(tmp_path) == ["w"]
    with (tmp_path / "big").open("wb") as big:
        big.truncate(1001)
    with pytest.raises(ValueError, match="1,001 bytes"):
        open_download(tmp_path, "big")
    with pytest.raises(ValueError, match="1,000 bytes"):
        await doors.env.copy_content_to_workspace("a", b"x" * 1001, "a")
    assert (await doors.ask("POST", "/mcp", doors.token("a"), data=io.BytesIO(b"[" * 2_000_000)))[0] == 413
    assert (await doors.ask("POST", "/mcp", doors.token("a"), data=b"[" * 100_000))[0] == 400


async def test_the_other_routes_work_with_the_token(doors: Doors) -> None:
    token = doors.token("a")
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "remember", "arguments": {"word": "w"}},
    }
    status, text = await doors.ask("POST", "/mcp", token, json=call)
    assert (status, json.loads(text)["result"]["content"][0]["text"]) == (200, "w")
    status, text = await doors.ask("POST", "/compute_reward", token, json={"completion": "", "ground_truth": "w"})
    assert (status, json.loads(text)["answer"], json.loads(text)["broken"]) == (200, 1.0, None)
    assert (await doors.ask("POST", "/compute_reward", token, json={"completion": ""}))[0] == 400
    assert (await doors.ask("POST", "/reset", token))[0] == 200
    assert await doors.env.run_tool("a", "recall") == "|"


NO_REQUESTS: list[tuple[dict[str, Any], int]] = [
    ({"method": "tools/call", "params": ["remember", {"word": "w"}]}, -32602),
    ({"method": "ping", "params": "all"}, -32602),
    ({"method": "tools/call", "params": {"name": "remember", "arguments": ["w"]}}, -32602),
    ({"method": ["tools/call"]}, -32600),
    ({"method": "tools/none"}, -32601),
]


async def test_requests_that_are_none_get_an_error_of_the_protocol(doors: Doors) -> None:
    for more, code in NO_REQUESTS:
        status, text = await doors.ask("POST", "/mcp", doors.token("a"), json={"jsonrpc": "2.0", "id": 7, **more})
        said = json.loads(text)
        assert (status, said["id"], said["error"]["code"]) == (200, 7, code), more


async def test_the_sdk_can_use_a_rollouts_door(doors: Doors) -> None:
    httpx2 = pytest.importorskip("httpx2")
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {doors.token('a')}"}

    async def use(mode: str) -> str:
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{doors.url}/mcp", http_client=http), mode=mode) as client,
        ):
            assert "recall" in {tool.name for tool in (await client.list_tools()).tools}
            return (await client.call_tool("recall", {})).content[0].text

    assert await asyncio.create_task(use("legacy")) == "|"
    assert await asyncio.create_task(use("auto")) == "|"


def test_paths_that_are_none() -> None:
    assert path_parts("a/./b//c.txt") == ["a", "b", "c.txt"]
    for path in ("", "/", "..", "a/..", "../a", "a\0", "/a", "a\\b", "a/" * 40 + "b", "./", "\ud800"):
        with pytest.raises(ValueError, match=r"workspace|file"):
            path_parts(path)
