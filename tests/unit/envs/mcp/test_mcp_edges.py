"""The small parts of MCP environments at their edges: uploads given up, long lines, many frames, crowded folders."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmax.envs.mcp.agent.reward_runner import RewardRunner
from benchmax.envs.mcp.agent.reward_worker import Channel
from benchmax.envs.mcp.agent.rollout_dirs import RolloutDirs, make_rollouts_dir
from benchmax.envs.mcp.agent.workspace_files import Upload
from benchmax.envs.mcp.client.mcp_session import RpcError
from benchmax.envs.mcp.client.stdio_session import StdioSession
from benchmax.envs.mcp.fork.server_sandbox import SandboxRules, ServerBox
from benchmax.envs.mcp.provisioners import LocalProvisioner, RayProvisioner
from benchmax.envs.mcp.setup.install import install
from benchmax.envs.mcp.workdir import read_workdir
from benchmax.envs.remote.wire import MESSAGE_BYTES, Frames, next_frames, pack
from benchmax.errors import EnvDefinitionError, RewardError, SandboxError, UsageError

DEMO = Path(__file__).parents[4] / "examples" / "mcp_demo"


# Uploads


def test_a_write_that_comes_after_the_end_of_its_upload_reaches_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    upload = Upload(tmp_path / "workspace", "a.txt")
    upload.write(b"first")
    upload.close()
    others = [os.open(tmp_path / f"other{each}", os.O_WRONLY | os.O_CREAT) for each in range(3)]
    try:
        with pytest.raises(UsageError, match="cancelled"):  # the thread that was to write it, late
            upload.write(b"second")
        assert [os.fstat(fd).st_size for fd in others] == [0, 0, 0]
        assert list((tmp_path / "workspace").iterdir()) == []
    finally:
        for fd in others:
            os.close(fd)


def test_an_upload_that_cannot_begin_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def full(path: object, flags: int, *rest: int, **where: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return real(path, flags, *rest, **where)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(UsageError, match="No space left"):
        Upload(tmp_path, "a.txt")
    monkeypatch.undo()
    assert descriptors_below(tmp_path) == []


def descriptors_below(folder: Path) -> list[str]:
    """What this process holds open there. Descriptors of other threads come and go meanwhile."""
    held = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            held.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in held if Path(path).is_relative_to(folder)]


# Frames


def test_what_is_sent_at_once_is_bounded_and_nothing_is_lost() -> None:
    frames = [bytes([each]) * (MESSAGE_BYTES // 4) for each in range(10)] + [b"last"]
    outbox, sent = list(frames), []
    while outbox:
        sent.append(next_frames(outbox))
    assert b"".join(sent) == b"".join(frames)
    assert max(map(len, sent)) <= MESSAGE_BYTES
    assert len(sent) == 3
    assert next_frames(outbox) == b""


async def test_functions_may_log_from_many_threads_while_the_agent_is_slow() -> None:
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.setblocking(False)
    channel = Channel(theirs)
    line = "x" * 60_000

    def log(name: str) -> None:
        for each in range(25):
            channel.send({"log": [20, name, f"{each} {line}"]})

    writers = [threading.Thread(target=log, args=(f"writer{each}",)) for each in range(4)]
    for writer in writers:
        writer.start()
    frames, heard = Frames(), []
    ours.settimeout(60)
    while len(heard) < 100:
        heard += [message["log"][1] for message in frames.feed(await asyncio.to_thread(ours.recv, 8192))]
    for writer in writers:
        writer.join()
    assert {name: heard.count(name) for name in set(heard)} == {f"writer{each}": 25 for each in range(4)}
    ours.close()
    theirs.close()


# What goes to servers


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "Write a finite number"),
        ({"deep": ["half \ud83d"]}, "half of a character"),
        ("\ud83d", "half of a character"),
        (json.loads("[" * 150 + "]" * 150), "nested more than 100 deep"),
    ],
)
async def test_what_no_server_could_read_is_answered_at_once(value: Any, words: str) -> None:
    stdin, stdout = os.pipe(), os.pipe()
    session = StdioSession("quiet")
    await session.connect(os.fdopen(stdin[1], "wb", 0), os.fdopen(stdout[0], "rb", 0))
    try:
        with pytest.raises(RpcError, match=words):
            await session.call("add", {"a": value}, 60.0)
        said = {"a": 1.5, "b": "\\ud83d 😀", "c": [[[1]]]}
        asking = asyncio.ensure_future(session.call("add", said, 60.0))
        sent = json.loads(await asyncio.to_thread(os.read, stdin[0], 65_536))
        assert sent["params"]["arguments"] == said
        os.write(
            stdout[1], json.dumps({"jsonrpc": "2.0", "id": sent["id"], "result": {"content": []}}).encode() + b"\n"
        )
        assert await asking == {"content": []}
    finally:
        await session.close()
        for fd in (stdin[0], stdout[1]):
            os.close(fd)


# What an agent finds


def test_an_agent_starts_where_another_was_killed(tmp_path: Path) -> None:
    left = RolloutDirs.make(make_rollouts_dir(tmp_path, tmp_path / "workdir"))
    assert make_rollouts_dir(tmp_path, tmp_path / "workdir") == left.own.parent
    assert not left.own.exists()


async def test_an_agent_starts_in_a_temporary_folder_with_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("folder" * 20)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    provisioner = LocalProvisioner(DEMO)
    try:
        (address,) = await provisioner.provision_servers("0123456789abcdef")
        assert address.startswith("127.0.0.1:")
    finally:
        await provisioner.teardown()


async def test_an_agent_starts_where_python_itself_prints_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('Welcome!', flush=True)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    provisioner = LocalProvisioner(DEMO)
    try:
        assert len(await provisioner.provision_servers("0123456789abcdef")) == 1
    finally:
        await provisioner.teardown()


async def test_an_agent_that_ends_at_once_is_reported_with_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import os, sys; print('a broken installation', file=sys.stderr); os._exit(3)"
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr("benchmax.envs.mcp.provisioners.agent_process.threading.Thread.start", _started_late)
    with pytest.raises(EnvDefinitionError, match="a broken installation"):
        await LocalProvisioner(DEMO).provision_servers("0123456789abcdef")


def _started_late(thread: threading.Thread, start: Callable[[threading.Thread], None] = threading.Thread.start) -> None:
    time.sleep(0.5)  # so that the agent has ended before it is sent anything
    start(thread)


async def test_without_bash_setup_sh_fails_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mcp_config.yaml").write_text("mcpServers: {a: {command: x}}")
    (tmp_path / "setup.sh").write_text("touch made")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvDefinitionError, match="needs bash"):
        await install(read_workdir(tmp_path), tmp_path / "root")


# Rewards


async def test_a_reward_process_that_is_lost_is_reported_with_the_reason(tmp_path: Path) -> None:
    runner = RewardRunner(tmp_path / "reward_fn.py", rules(), sys.executable, os.environ["PATH"], tmp_path)
    loop = asyncio.get_running_loop()
    ended, closed = loop.create_future(), loop.create_future()
    ended.set_exception(SandboxError("The sandbox's server ended, and the call with it. Try again."))
    closed.set_result(None)
    child: Any = SimpleNamespace(ended=ended)
    connection: Any = SimpleNamespace(outcome=loop.create_future(), closed=closed)
    tail: Any = SimpleNamespace(lines=[], closed=closed)
    with pytest.raises(RewardError, match=r"is lost. The sandbox's server ended"):
        await runner._wait(child, connection, tail, 5.0)


# The sandbox of servers


def rules(*read: str) -> SandboxRules:
    return SandboxRules(("/usr", "/etc", *read), True, shown=("/etc",))


async def test_a_folder_with_very_many_files_does_not_keep_servers_from_starting(tmp_path: Path) -> None:
    crowd = (str(tmp_path / f"a-file-of-a-crowded-folder-{each}") for each in range(6_000))
    box = ServerBox(rules(*crowd), tmp_path, dict(os.environ))
    try:
        await box.start()
        dirs = RolloutDirs.make(tmp_path)
        tmp_path.chmod(0o711)
        dirs.give_to(box.user)
        out_read, out_write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        child = await box.spawn(["echo", "hi"], dirs.own, dict(os.environ), [null, out_write, os.dup(null)])
        assert (await asyncio.wait_for(asyncio.shield(child.ended), 60)).exit == 0
        assert os.read(out_read, 10) == b"hi\n"
        os.close(out_read)
        null = os.open(os.devnull, os.O_RDWR)
        child = await box.spawn(["echo", "x" * 250_000], dirs.own, {}, [null, os.dup(null), os.dup(null)])
        assert (await asyncio.wait_for(asyncio.shield(child.ended), 60)).exit == 127, "which the kernel does not take"
        assert box._sandbox.running
    finally:
        await box.close()


async def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    box = ServerBox(rules(), tmp_path, dict(os.environ))
    try:
        await box.start()
        dirs = RolloutDirs.make(tmp_path)
        tmp_path.chmod(0o711)
        dirs.give_to(box.user)
        null = os.open(os.devnull, os.O_RDWR)
        starting = asyncio.ensure_future(
            box.spawn(["sleep", "600"], dirs.own, dict(os.environ), [null, os.dup(null), os.dup(null)])
        )
        while not (processes := list(box._sandbox._connection._processes.values())):  # type: ignore[union-attr]
            await asyncio.sleep(0)
        starting.cancel()
        assert (await asyncio.wait_for(asyncio.shield(processes[0].ended), 60)).by == "killed"
    finally:
        await box.close()


# Clusters


async def test_a_node_that_starts_late_is_ended_when_another_cannot() -> None:
    class Nodes(RayProvisioner):
        ended = 0

        def _nodes(self) -> list[str]:
            return ["bad", "late"]

        async def _start(self, node: str, secret: str) -> str:
            if node == "bad":
                raise EnvDefinitionError("There is no processor. Free one.")
            await asyncio.sleep(0.05)
            self._agents[node] = self  # type: ignore[assignment]
            return node

        def end(self) -> None:
            self.ended += 1

    nodes = Nodes(DEMO)
    with pytest.raises(EnvDefinitionError, match="no processor"):
        await nodes.provision_servers("secret")
    assert nodes.ended == 1
    assert not nodes._agents


def test_frames_are_frames() -> None:
    assert [*Frames().feed(next_frames([pack({"a": 1}), pack({"b": 2})]))] == [{"a": 1}, {"b": 2}]
