"""S32: an uploaded environment in its sandbox works as it does outside, and owns nothing of the machine."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.remote import Confinement, ProcessLimits, RemoteEnv, open_remote_env
from benchmax.envs.remote.wire import RemoteError
from benchmax.errors import ConfigError, EnvDefinitionError, EnvError
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_batch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

SECRET = "the administrator's key"
PACKAGE = make_example.__code__.co_filename


@asynccontextmanager
async def opened(env_class: type[BaseEnv], **options: Any) -> AsyncIterator[RemoteEnv]:
    env = await open_remote_env(dump_bundle(env_class), **{"sandbox": Confinement(), **options})
    try:
        yield env
    finally:
        await env.shutdown()


class Running(BaseEnv):
    """Runs what it is told."""

    async def run_tool(self, rollout_id, tool_name, source="", **kw):
        names: dict[str, Any] = {}
        exec(textwrap.dedent(source), names)
        return str(names.get("got"))

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": float(str(task["i"]) in str(messages))}


@pytest.fixture
def secret() -> Iterator[Path]:
    """As the platform keeps it: in a folder of its user's, in the temporary folder and outside of it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None) as folder:
        path = Path(folder, "secret.key")
        path.write_text(SECRET)
        yield path


@pytest.fixture
def platform() -> Iterator[int]:
    """A port that answers."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller:
                caller.send(SECRET.encode())

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


async def test_rollouts_are_played_as_outside() -> None:
    examples = [make_example([{"role": "user", "content": f"question {i}"}], {"i": i}) for i in range(8)]
    for sandbox in (None, Confinement()):
        env = await open_remote_env(dump_bundle(Running), processes=2, sandbox=sandbox)
        async with EnvHost(env) as host:
            rollouts = await run_batch(host, examples, ScriptedModel("the answer"))
            assert [rollout.reward for rollout in rollouts] == [1.0] * 8


READ = "got = open({path!r}).read()"
TRIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "a file of the platform's user": lambda here: READ.format(path=here["secret"]),
    "a file of the machine": lambda here: READ.format(path="/etc/shadow" if os.geteuid() == 0 else here["secret"]),
    "another process's variables": lambda here: READ.format(path=f"/proc/{here['pid']}/environ"),
    "the runner's end": lambda here: f"import os, signal; os.kill({here['pid']}, 0); got = 1",
    "another environment's folder": lambda here: f"import os; got = os.listdir({here['other']!r})",
    "its own bundle changed": lambda here: "import glob; got = open(glob.glob('../../bundle/*')[0], 'w')",
    "the interpreter changed": lambda here: f"got = open({here['package']!r}, 'a')",
    "the platform's address": lambda here: (
        f"import socket; got = socket.create_connection(('127.0.0.1', {here['port']}), 30).recv(100)"
    ),
    "a shell's rights": lambda here: (
        "import subprocess; got = subprocess.run(['unshare', '-r', 'true'], check=True).returncode"
    ),
}


async def test_what_it_tries_to_get_it_does_not(secret: Path, platform: int) -> None:
    """The same code without a sandbox gets it."""
    async with (
        opened(Running, sandbox=None) as other,
        opened(Running, sandbox=None) as plain,
        opened(Running, sandbox=Confinement(closed_ports=(platform,))) as env,
    ):
        folder = await other.run_tool("o", "do", source="import os; got = os.getcwd()")
        here = {
            "secret": str(secret), "pid": os.getpid(), "port": platform, "other": folder,
            "package": PACKAGE if os.access(PACKAGE, os.W_OK) else str(secret),
        }  # fmt: skip
        for name, source_of in TRIES.items():
            source = source_of(here)
            assert await plain.run_tool("p", "do", source=source) != "None", name
            with pytest.raises(Exception, match=r"Error|Permission|exit status"):
                print(name, "was got:", await env.run_tool("r", "do", source=source))


async def test_it_has_its_folder_its_packages_and_the_network(platform: int) -> None:
    source = f"""
    import os, socket, subprocess, tempfile, pydantic
    with tempfile.NamedTemporaryFile() as file:
        inside = file.name.startswith(os.getcwd())
    printed = subprocess.run(["cat"], input=b"hello", capture_output=True).stdout
    heard = socket.create_connection(("127.0.0.1", {platform})).recv(99)
    got = inside, os.environ["HOME"] == os.getcwd(), printed, heard
    """
    async with opened(Running) as env:
        assert await env.run_tool("r", "do", source=source) == str((True, True, b"hello", SECRET.encode()))


class Lonely(Running):
    NETWORK = "none"


async def test_an_environment_that_asks_for_no_network_has_none(platform: int) -> None:
    source = f"import socket; got = socket.create_connection(('127.0.0.1', {platform}))"
    async with opened(Lonely) as env:
        with pytest.raises(RemoteError, match=r"not permitted|unreachable"):
            await env.run_tool("r", "do", source=source)


async def test_files_go_into_a_workspace_and_out_by_content(tmp_path: Path) -> None:
    class Files(BaseEnv):
        async def copy_to_workspace(self, rollout_id, src_path, dst_filename=None):
            Path(dst_filename or src_path.name).write_bytes(src_path.read_bytes())

        async def copy_from_workspace(self, rollout_id, src_filename, dst_path):
            if src_filename == "link":
                dst_path.symlink_to("/etc/passwd")
            else:
                dst_path.write_bytes(Path(src_filename).read_bytes() * 2)

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    (tmp_path / "in").write_bytes(b"\x00one")
    async with opened(Files) as env:
        await env.copy_to_workspace("r", tmp_path / "in")
        await env.copy_from_workspace("r", "in", tmp_path / "out")
        with pytest.raises(Exception, match=r"symbolic|link"):
            await env.copy_from_workspace("r", "link", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"\x00one\x00one"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
async def test_a_process_that_dies_is_replaced(source: str, words: str) -> None:
    async with opened(Running) as env:
        with pytest.raises(EnvError, match=words):
            await env.run_tool("r", "do", source=source)
        assert await env.run_tool("s", "do", source="got = 1") == "1"


async def test_memory_of_all_its_processes_together_is_bounded() -> None:
    source = """
    import os, time
    for _ in range(6):
        if os.fork() == 0:
            x = b"x" * (100 << 20); time.sleep(20); os._exit(0)
    time.sleep(20)
    """
    async with opened(Running, process_limits=ProcessLimits(memory_bytes=400 << 20)) as env:
        with pytest.raises(EnvError, match="memory limit of its sandbox"):
            await env.run_tool("r", "do", source=source)


STARTER = """
import os, signal, sys
from benchmax.envs.remote import Confinement, RemoteEnv
env = RemoteEnv("arithmetic", sandbox=Confinement())
print(env._pool._spec.workdir.parent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_nothing_is_left_when_the_starter_is_killed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STARTER], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    folder = done.stdout.strip()
    assert folder, done.stderr
    async with asyncio.timeout(60):
        while Path(folder).exists() or any(folder in " ".join(each) for each in _command_lines()):
            await asyncio.sleep(0.05)


def _command_lines() -> list[list[str]]:
    return [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]


async def test_a_home_folder_is_not_opened_for_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="folder of its own"):
        await open_remote_env("main.py", sandbox=Confinement())


async def test_without_a_boundary_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmax.sandbox import Capabilities, sandbox

    monkeypatch.delenv("BENCHMAX_SANDBOX_INSIST", raising=False)
    poor = Capabilities(frozenset(), {"user": "not allowed"}, root=False)
    monkeypatch.setattr(sandbox, "_capabilities", lambda _: poor)
    with pytest.raises(EnvDefinitionError, match="BENCHMAX_SANDBOX_INSIST=1"):
        await open_remote_env(dump_bundle(Running), sandbox=Confinement())


def venv_with(folder: Path, code: str) -> Path:
    """A virtual environment in which a package runs code whenever its interpreter starts."""
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    lent = [path for path in sys.path if path.endswith(("site-packages", "src"))]
    (packages / "lent.pth").write_text("\n".join(lent) + "\n")
    (packages / "evil.pth").write_text(f"import os; {code}\n")
    return home / "bin" / "python"


async def test_packages_of_others_run_in_the_sandbox_alone(tmp_path: Path) -> None:
    """The interpreter of an environment is never started outside."""
    canary = tmp_path / "canary"
    python = venv_with(tmp_path, f"os.path.isdir({str(tmp_path)!r}) and open({str(canary)!r}, 'a').close()")
    async with opened(Running, python=python) as env:
        assert await env.run_tool("r", "do", source="import sys; got = sys.prefix") == str(python.parents[1])
    assert not canary.exists()
    subprocess.run([python, "-c", ""], check=True)
    assert canary.exists(), "it works outside"


async def test_mcp_servers_of_an_environment_start_in_its_sandbox() -> None:
    pytest.importorskip("mcp")
    from benchmax.envs.mcp import PackedWorkdir, ParallelMcpEnv
    from benchmax.envs.mcp.provisioners import LocalProvisioner

    workdir = PackedWorkdir(Path(__file__).parents[2] / "examples" / "mcp_demo")

    class Demo(ParallelMcpEnv):
        def __init__(self) -> None:
            super().__init__(workdir, LocalProvisioner(workdir, 1))

    async with opened(Demo) as env:
        await env.init_rollout("r")
        assert "7" in str(await env.run_tool("r", "evaluate", expression="3 + 4"))
        await env.release_rollout("r")
