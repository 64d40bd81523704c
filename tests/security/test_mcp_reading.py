"""What servers may read: what is named, and nothing because an argument or a variable is a path."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.mcp.fork.read_rules import extra_paths, server_rules, unreadable_paths
from benchmax.envs.mcp.server_config import ServerSpec, parse_config
from benchmax.envs.mcp.workdir import Workdir
from benchmax.errors import EnvDefinitionError, McpError
from benchmax.sandbox.inside.landlock import version as landlock_version
from mcp_world import PROBE, REFUSED, make_workdir, opened

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no landlock")
ANY_ARGUMENTS = PROBE.replace("len(sys.argv) > 1", "False")


def config(**more: Any) -> str:
    return json.dumps({"mcpServers": {"probe": {"command": "python", "args": ["server.py"], **more}}})


@needs_landlock
async def test_a_value_that_is_a_path_opens_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "project"
    outside.mkdir()
    (outside / "reward_fn.py").write_text("of another environment")
    values = {"ROOT": "/", "HOMES": str(Path.home()), "PROJECT": str(outside), "ETC": "/etc"}
    args = ["server.py", "/", str(outside), f"--dir={outside}", "/tmp"]
    workdir = make_workdir(tmp_path / "w", ANY_ARGUMENTS, config(args=args, env=values))
    async with opened(workdir, servers=2) as env:
        await env.init_rollout("a")
        await env.init_rollout("b")
        await env.run_tool("b", "remember", word="of b")
        own = Path(env._pool.machines[0].agent.address.removeprefix("unix:")).parent
        closed = [
            outside / "reward_fn.py", own / "workdir" / "reward_fn.py", workdir / "reward_fn.py", "/etc/shadow",
            Path(env._pool.leases["b"].workspace) / "nonce",
        ]  # fmt: skip
        for path in closed:
            assert await env.run_tool("a", "read", path=str(path)) in REFUSED, path
        for folder in ("/", str(Path.home()), "/tmp", str(outside)):
            assert await env.run_tool("a", "listing", path=folder) in REFUSED, folder
        assert "root:" in await env.run_tool("a", "read", path="/etc/passwd")
        assert str(outside) in (await env.state())[0]["unread"]["probe"]


@needs_landlock
async def test_what_read_names_is_readable_and_its_neighbours_are_not(tmp_path: Path) -> None:
    for name in ("data", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    (tmp_path / "data" / "link").symlink_to(tmp_path / "other" / "a.txt")
    workdir = make_workdir(
        tmp_path / "w", config=config(read=[str(tmp_path / "data")], env={"D": str(tmp_path / "data")})
    )
    async with opened(workdir, servers=1) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "read", path=str(tmp_path / "data" / "a.txt")) == "data"
        assert await env.run_tool("a", "read", path=str(tmp_path / "data" / "link")) in REFUSED
        assert await env.run_tool("a", "read", path=str(tmp_path / "other" / "a.txt")) in REFUSED
        assert await env.run_tool("a", "write", path=str(tmp_path / "data" / "a.txt"), text="") in REFUSED
        assert (await env.state())[0]["unread"] == {}


@needs_landlock
async def test_a_link_in_the_workdir_opens_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "project"
    outside.mkdir()
    (outside / "secret.txt").write_text("of the user")
    workdir = make_workdir(tmp_path / "w", config=config())
    (workdir / "data.txt").write_text("of the workdir")
    for name, target in {"out": outside, "file": outside / "secret.txt", "disk": "/", "own": "data.txt"}.items():
        (workdir / name).symlink_to(target)
    async with opened(workdir, servers=1) as env:
        await env.init_rollout("a")
        place = Path(env._pool.machines[0].agent.address.removeprefix("unix:")).parent / "workdir"
        for path in (place / "out" / "secret.txt", place / "file", place / "disk" / "etc" / "shadow"):
            assert await env.run_tool("a", "read", path=str(path)) in REFUSED
        assert await env.run_tool("a", "read", path=str(place / "own")) == "of the workdir"
        assert {str(outside), str(outside / "secret.txt")} <= set((await env.state())[0]["unread"]["probe"])
    workdir = make_workdir(tmp_path / "w", config=config(read=[str(outside)]))
    async with opened(workdir, servers=1) as env:
        await env.init_rollout("a")
        place = Path(env._pool.machines[0].agent.address.removeprefix("unix:")).parent / "workdir"
        assert await env.run_tool("a", "read", path=str(place / "file")) == "of the user"


@needs_landlock
@pytest.mark.parametrize("fork", [True, False])
async def test_one_servers_paths_are_not_anothers(tmp_path: Path, fork: bool) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("data")
    server = {"command": "python", "args": ["server.py"], "fork": fork}
    servers = {"one": {**server, "read": [str(tmp_path / "data")]}, "two": server}
    async with opened(make_workdir(tmp_path / "w", config=json.dumps({"mcpServers": servers})), servers=1) as env:
        await env.init_rollout("a")
        path = str(tmp_path / "data" / "a.txt")
        assert await env.run_tool("a", "one_read", path=path) == "data"
        assert await env.run_tool("a", "two_read", path=path) in REFUSED


async def test_values_longer_than_a_file_name_do_not_stop_the_agent(tmp_path: Path) -> None:
    long = "k" * 5_000
    servers = config(args=["server.py", long, f"/{long}"], env={"TOKEN": long, "PATHLIKE": f"/{long}/x"})
    async with opened(make_workdir(tmp_path / "w", ANY_ARGUMENTS, servers), servers=1) as env:
        await env.init_rollout("a")
        assert json.loads(await env.run_tool("a", "variables"))["TOKEN"] == long


@needs_landlock
async def test_a_server_that_fails_for_what_it_may_not_read_is_told_the_key(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("x")
    server = "import sys\nopen(sys.argv[1]).read()\n"
    workdir = make_workdir(tmp_path / "w", server, config(args=["server.py", str(data)]))
    async with opened(workdir, servers=1) as env:
        with pytest.raises(McpError, match=rf"(PermissionError|FileNotFoundError)(.|\n)*may not read {data}.*`read`"):
            await env.init_rollout("a")


# Which paths, without a server


def rules(tmp_path: Path, **server: Any) -> tuple[ServerSpec, Workdir, tuple[str, ...]]:
    (spec,) = parse_config({"mcpServers": {"it": server}}, "config")
    workdir = Workdir(tmp_path / "w", (spec,))
    found = extra_paths(spec, workdir, tmp_path / "root", os.environ["PATH"])
    return spec, workdir, found


def test_no_command_opens_a_home_or_the_disk(tmp_path: Path) -> None:
    program = tmp_path / "home" / "bin" / "serve"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    script = tmp_path / "home" / "server.py"
    script.write_text("")
    _, _, found = rules(tmp_path, command=str(program), args=["/", str(tmp_path)])
    assert str(program) in found
    assert not {"/", str(tmp_path), str(tmp_path / "home"), str(Path.home())} & set(found)
    spec, _, found = rules(tmp_path, command="python", args=[str(script), "/"])
    assert str(script) in found
    assert str(script.parent) not in found
    assert str(script.parent) in unreadable_paths(spec, found, tmp_path / "w")


def test_what_everybody_may_not_read_is_closed_to_root_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    monkeypatch.setattr("sys.path", [str(tmp_path / "start"), str(tmp_path / "mine"), *os.sys.path])  # type: ignore[attr-defined]
    for name in ("mine", "start"):
        (tmp_path / name).mkdir()
    (spec,) = parse_config({"mcpServers": {"it": {"command": "python"}}}, "config")
    found = {Path(each) for each in server_rules(Workdir(tmp_path / "w", (spec,)), tmp_path / "root", "/usr/bin").read}

    def open_to_servers(path: str | Path) -> bool:
        return any(Path(path).is_relative_to(each) for each in found)

    assert open_to_servers("/etc/passwd")
    assert open_to_servers("/usr/bin/env")
    closed = ["/etc/shadow", "/home", str(Path.home() / ".bashrc"), "/var/lib", "/srv", "/mnt", "/tmp", "/dev/sda"]
    assert [path for path in closed if open_to_servers(path)] == []
    assert [path for path in ("mine", "start") if open_to_servers(tmp_path / path)] == []


@pytest.mark.parametrize(("read", "said"), [("/", "whole disk"), ("//.", "whole disk"), ("data", "whole path")])
def test_what_read_may_not_name(read: str, said: str) -> None:
    with pytest.raises(EnvDefinitionError, match=said):
        parse_config({"mcpServers": {"it": {"command": "python", "read": [read]}}}, "config")


def test_read_names_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(EnvDefinitionError, match="which is not there"):
        rules(tmp_path, command="python", read=[str(tmp_path / "nowhere")])
    (tmp_path / "disk").symlink_to("/")
    with pytest.raises(EnvDefinitionError, match="whole disk"):
        rules(tmp_path, command="python", read=[str(tmp_path / "disk")])
    (tmp_path / "root" / "rollouts").mkdir(parents=True)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "reward_fn.py").write_text("")
    (tmp_path / "plain").write_text("")
    _, _, found = rules(tmp_path, command="python", read=[str(tmp_path)])
    named = [each for each in found if Path(each).is_relative_to(tmp_path)]
    assert named == [str(tmp_path / "plain")]
