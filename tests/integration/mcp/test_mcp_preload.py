"""Packages are imported beforehand only where that changes nothing for the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.mcp import ParallelMcpEnv
from mcp_world import REFUSED, SMALL_SERVER, make_workdir, opened

HEAD = SMALL_SERVER + "import {package}\nserver = SmallServer('it')\n"
HEAD_OF_SDK = "import json\nfrom mcp.server import MCPServer\nimport {package}\nserver = MCPServer('it')\n"
TAIL = "\nserver.run('stdio')\n"
IMPORTED = "import os\nIMPORTED = int(os.readlink('/proc/self'))\n"
"""In which process a module was imported, without asking for its id as packages do."""
SAYS = "\n@server.tool()\ndef seen() -> str:\n    return json.dumps({package}.seen())\n"


def workdir_of(folder: Path, package: str, files: dict[str, str], head: str = HEAD, **more: Any) -> Path:
    """A workdir whose server imports a package that was installed elsewhere."""
    installed = folder / "installed"
    for name, text in files.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    variables = {"PYTHONPATH": str(installed), **more.pop("env", {})}
    server = {"command": "python", "args": ["server.py", *more.pop("args", [])], "read": [str(installed)]}
    config = json.dumps({"mcpServers": {"it": {**server, "env": variables, **more}}})
    return make_workdir(folder / "w", (head + SAYS + TAIL).replace("{package}", package), config)


async def seen(env: ParallelMcpEnv, rollout: str) -> Any:
    await env.init_rollout(rollout)
    return json.loads(await env.run_tool(rollout, "seen"))


async def left(env: ParallelMcpEnv) -> dict[str, str]:
    state = (await env.state())[0]
    assert state["not_forked"] == {}
    found: dict[str, str] = state["not_preloaded"].get("it", {})
    return found


async def test_a_package_that_opens_a_database_when_imported_has_one_in_each_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    package = """
import sqlite3
db = sqlite3.connect("data.db", check_same_thread=False)
db.execute("create table t (x)")
def seen():
    db.execute("insert into t values (1)")
    db.commit()
    place = [row[2] for row in db.execute("pragma database_list")][0]
    return [db.execute("select count(*) from t").fetchone()[0], place]
"""
    async with opened(workdir_of(tmp_path, "keeps", {"keeps.py": package}), servers=2) as env:
        for rollout in ("a", "b"):
            count, path = await seen(env, rollout)
            assert count == 1
            assert Path(path).parent == Path(env._pool.leases[rollout].workspace)
        assert "opens the database data.db" in (await left(env))["keeps"]
    assert list(project.iterdir()) == []


async def test_settings_read_when_imported_are_the_rollouts_own(tmp_path: Path) -> None:
    package = """
import os, sys
from pathlib import Path
VALUES = {"place": os.environ.get("PLACE", "default"), "fixed": os.environ["FIXED"], "home": str(Path.home()),
          "args": sys.argv[1:]}
def seen():
    return VALUES
"""
    outer = "import settings_inside\nseen = settings_inside.seen\n"
    files = {"settings_inside.py": package, "outer/__init__.py": outer}
    env_of = {"PLACE": "${{ workspace }}/place", "FIXED": "as it is"}
    workdir = workdir_of(tmp_path, "outer", files, env=env_of, args=["--dir", "${{ workspace }}"])
    async with opened(workdir, servers=2) as env:
        for rollout in ("a", "b"):
            values = await seen(env, rollout)
            own = env._pool.leases[rollout].workspace
            assert values["place"] == f"{own}/place"
            assert values["args"] == ["--dir", own]
            assert values["home"] == str(Path(own).parent / "home")
            assert values["fixed"] == "as it is"
        reasons = await left(env)
        assert "PLACE" in reasons["settings_inside"]
        assert reasons["outer"].startswith("imports settings_inside")


async def test_what_is_the_same_for_all_is_imported_once_with_the_servers_own_words(tmp_path: Path) -> None:
    package = """
import os, sys
VALUES = [os.environ.get("FIXED"), sys.argv[1:], int(os.readlink("/proc/self"))]
def seen():
    return [*VALUES, os.getpid()]
"""
    given = {"env": {"FIXED": "yes"}, "args": ["--mode", "fast"]}
    workdir = workdir_of(tmp_path, "plain", {"plain.py": package}, HEAD_OF_SDK, **given)
    async with opened(workdir, servers=1) as env:
        fixed, arguments, imported_in, runs_in = await seen(env, "a")
        assert (fixed, arguments) == ("yes", ["--mode", "fast"])
        assert imported_in != runs_in, "it was imported before the fork"
        assert await left(env) == {}


async def test_packages_are_imported_confined_and_in_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "secret.txt").write_text("of the user")
    monkeypatch.chdir(project)
    package = f"""
import os
def attempt(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__
VALUES = [attempt(lambda: open({str(project / "secret.txt")!r}).read()), attempt(lambda: os.stat("secret.txt")),
          attempt(lambda: open("/etc/shadow").read()), attempt(lambda: os.stat(".").st_nlink)]
IMPORTED = int(os.readlink("/proc/self"))
def seen():
    return [*VALUES, IMPORTED == os.getpid()]
"""
    async with opened(workdir_of(tmp_path, "nosy", {"nosy.py": package}), servers=1) as env:
        of_user, beside, shadow, _, imported_here = await seen(env, "a")
        assert {of_user, shadow} <= set(REFUSED)
        assert beside == "FileNotFoundError"
        assert not imported_here, "it was imported in the parent, where it saw as little"


SHARED = [
    ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "starts a thread"),
    ("import tempfile; F = tempfile.mkdtemp()", "TMPDIR"),
    ("open('log.txt', 'a').close()", "writes log.txt"),
    ("import random; RNG = random.Random()", "random"),
    ("DATA = open(__file__)", "keeps a file or a connection open"),
    ("import mmap; SHARED = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)", "shares memory"),
]
SHARED_TOO = [
    ("import subprocess; subprocess.run(['true'])", "runs another program"),
    ("import os; CWD = os.path.abspath('x')", "working directory"),
    ("import socket; s = socket.socket(); s.bind(('127.0.0.1', 0))", "opens a connection"),
    ("import os; CWD = os.getcwdb()", "working directory"),
    ("import os; HOME = os.environb.get(b'HOME')", "HOME"),
    ("import os; ME = os.getpid()", "process id"),
    ("import uuid; SESSION = uuid.uuid4()", "random"),
    ("from random import choice; NAME = choice('ab')", "random"),
    ("import asyncio; LOOP = asyncio.new_event_loop()", "keeps a file or a connection open"),
    ("import os; PIPE = os.pipe()", "keeps a file or a connection open"),
]


@pytest.mark.parametrize(
    ("line", "why"), [*SHARED, *(pytest.param(*each, marks=pytest.mark.slow) for each in SHARED_TOO)]
)
async def test_what_would_be_shared_or_stale_is_done_by_each_server(tmp_path: Path, line: str, why: str) -> None:
    package = f"{line}\n{IMPORTED}def seen():\n    return IMPORTED == os.getpid()\n"
    async with opened(workdir_of(tmp_path, "busy", {"busy.py": package}), servers=1, spares=0) as env:
        assert await seen(env, "a") is True
        assert why in (await left(env))["busy"]


async def test_streams_and_words_that_packages_take_when_imported_are_the_servers(tmp_path: Path) -> None:
    package = """
import random, sys
IN, OUT = sys.stdin, sys.stdout
RNG = random.Random(7)
sys.stdout = sys.stderr  # so that prints do not disturb the protocol
def seen():
    return [sys.stdin is IN, sys.stdout is sys.stderr, OUT.seekable(), sys.orig_argv[1:] == sys.argv]
"""
    server = """
import json
import taken
for line in taken.IN:
    message = json.loads(line)
    if "id" not in message:
        continue
    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
    result = {"initialize": about, "tools/list": {"tools": [{"name": "seen"}]}}.get(message["method"])
    result = result or {"content": [{"type": "text", "text": json.dumps(taken.seen())}]}
    print("not for the client")
    taken.OUT.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\\n")
"""
    workdir = workdir_of(tmp_path, "taken", {"taken.py": package}, args=["--mode", "fast"])
    (workdir / "server.py").write_text(server)
    async with opened(workdir, servers=1, spares=0) as env:
        assert await seen(env, "a") == [True, True, False, True]
        assert await left(env) == {}


async def test_a_thread_that_no_hook_tells_of_leaves_out_its_package_and_not_the_server(tmp_path: Path) -> None:
    files = {
        "deep.py": "import _thread\nLOCK = _thread.allocate_lock()\nLOCK.acquire()\n"
        "_thread.start_new_thread(LOCK.acquire, ())\n",
        "outer.py": "import deep, beside, os\n"
        "def seen():\n    return [beside.IMPORTED == os.getpid(), deep.LOCK.locked()]\n",
        "beside.py": IMPORTED,
    }
    async with opened(workdir_of(tmp_path, "outer", files), servers=1, spares=0) as env:
        assert await seen(env, "a") == [False, True]
        reasons = await left(env)
        assert reasons["deep"] == "starts a thread"
        assert set(reasons) == {"deep", "outer"}


async def test_a_probe_for_ipv6_does_not_keep_a_common_package_from_being_shared(tmp_path: Path) -> None:
    package = f"import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.close()\n{IMPORTED}"
    files = {
        "urllib3.py": package,
        "it.py": "import os, urllib3\ndef seen():\n    return urllib3.IMPORTED == os.getpid()\n",
    }
    async with opened(workdir_of(tmp_path, "it", files), servers=1, spares=0) as env:
        assert await seen(env, "a") is False
        assert await left(env) == {}


async def test_servers_are_forked_once_their_packages_are_imported_however_long_it_takes(tmp_path: Path) -> None:
    done = tmp_path / "installed" / "done"
    package = f"""
import os, time
while b"forker" in open("/proc/self/cmdline", "rb").read() and not os.path.exists({str(done)!r}):
    time.sleep(0.02)
IMPORTED = int(os.readlink("/proc/self"))
def seen():
    return IMPORTED == os.getpid()
"""
    workdir = workdir_of(tmp_path, "slow", {"slow.py": package}, start_seconds=3)
    async with opened(workdir, servers=1, spares=0) as env:
        assert await seen(env, "a") is True, "while they are, it is run as it is"
        done.touch()
        anew, tries = True, 200
        while anew and (tries := tries - 1):
            await env.release_rollout("a")
            anew = await seen(env, "a")
        assert not anew
        assert await left(env) == {}
