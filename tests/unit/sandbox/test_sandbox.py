"""Code in a sandbox: what it is given and gives back, what ends it, and what is left when its caller is gone."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from benchmax.errors import SandboxError, SandboxUnavailable, UsageError
from benchmax.sandbox import Call, Capabilities, Limits, Sandbox, capabilities, require
from benchmax.sandbox.inside.fork_server import Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as opened:
        yield opened


async def test_code_has_its_input_arguments_variables_and_files(sandbox: Sandbox) -> None:
    code = """
import os, sys
print(sys.stdin.read(), sys.argv[1:], os.environ["COLOUR"], open("in/rows.csv").read())
os.mkdir("out"); open("out/sum", "wb").write(b"6")
sys.exit(3)
"""
    call = Call(code, ["a"], b"hello", {"in/rows.csv": b"1,2,3"}, ["out/sum", "never"], {"COLOUR": "red"})
    result = await sandbox.run(call)
    assert (result.exit, result.stdout, result.ended_by) == (3, "hello ['a'] red 1,2,3\n", None)
    assert result.files == {"out/sum": b"6"}


async def test_an_error_reads_as_it_does_in_python(sandbox: Sandbox) -> None:
    result = await sandbox.run(Call("def f():\n    return 1 / 0\nf()"))
    assert result.exit == 1
    assert result.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert 'File "main.py", line 2, in f' in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


async def test_any_program_runs(sandbox: Sandbox) -> None:
    result = await sandbox.run(Call(argv=["sh", "-c", "cat; echo $((6 * 7)); kill -TERM $$"], stdin=b"in "))
    assert (result.exit, result.stdout) == (-signal.SIGTERM, "in 42\n")
    missing = await sandbox.run(Call(argv=["no-such-program"]))
    assert missing.exit == 127
    assert "cannot run 'no-such-program'" in missing.stderr


@pytest.mark.parametrize(
    "call",
    [
        Call("print(1)", env={"A=B": "1"}),
        Call("print(1)", env={"A": "1\0"}),
        Call(argv=["echo", "1\0"]),
        Call(argv=["echo", "\ud800"]),
        Call(argv=[""]),
    ],
    ids=["name", "value", "argument", "surrogate", "empty"],
)
async def test_what_no_program_can_be_given_is_no_success(sandbox: Sandbox, call: Call) -> None:
    result = await sandbox.run(call)
    assert (result.exit, result.stdout) == (127, "")
    assert "cannot run" in result.stderr


async def test_a_path_to_read_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("hello")
    monkeypatch.chdir(tmp_path)
    async with Sandbox(read=["data"]) as sandbox:
        result = await sandbox.run(Call(f"print(open({str(tmp_path / 'data' / 'a')!r}).read())"))
    assert result.stdout == "hello\n", result.stderr


async def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    sandbox = Sandbox()
    starting = asyncio.ensure_future(sandbox.start())
    while not (found := [each for each in psutil.Process().children() if "launcher.py" in " ".join(each.cmdline())]):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(each.is_running() for each in found)


async def test_output_over_its_limit_is_cut_and_says_so(sandbox: Sandbox) -> None:
    call = Call("while True: print('x' * 1000)", limits=Limits(output_bytes=5_000, wall_seconds=20))
    result = await sandbox.run(call)
    assert (result.ended_by, result.exit) == ("output", -9)
    assert result.stdout.endswith("x\n[cut: the limit is 5,000 bytes]")


async def test_what_is_read_cannot_be_grown(sandbox: Sandbox) -> None:
    """Input lies in memory that is nobody's: written to, it would be bounded by nothing."""
    code = "import os; os.write(os.open('/proc/self/fd/0', os.O_RDWR), b'x' * 100)"
    result = await sandbox.run(Call(code, stdin=b"hello"))
    assert result.exit == 1
    assert "Error" in result.stderr


async def test_a_call_given_up_is_ended_and_others_go_on(sandbox: Sandbox) -> None:
    began = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, began.set)
    given_up = asyncio.create_task(sandbox.run(Call("import time; time.sleep(60)")))
    await began.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    before = len(os.listdir("/proc/self/fd"))
    results = await asyncio.gather(*(sandbox.run(Call(f"print({n})")) for n in range(20)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]
    assert len(os.listdir("/proc/self/fd")) <= before
    await sandbox.close()  # with a call whose caller gave up, too


async def test_a_call_that_is_killed_while_it_begins_takes_nothing_with_it(sandbox: Sandbox) -> None:
    """At any moment of its beginning; one that was killed with an order unread once ended the server."""
    noise = random.Random(0)
    staying = asyncio.ensure_future(sandbox.run(Call(argv=["sleep", "600"])))
    null = os.open(os.devnull, os.O_RDWR)
    for _ in range(100):
        await sandbox.start()
        assert sandbox._connection is not None
        process = sandbox._connection.spawn(Call(argv=["sleep", "600"]), [null] * 3, keep=True)
        await asyncio.sleep(noise.uniform(0, 0.012))
        process.kill()
        ended = await asyncio.wait_for(asyncio.shield(process.ended), 60)
        assert ended.by == "killed"
        if ended.workspace >= 0:
            os.close(ended.workspace)
    os.close(null)
    assert not staying.done()
    staying.cancel()


async def test_closing_ends_calls_whether_waited_for_or_not() -> None:
    async with Sandbox() as sandbox:
        waited = asyncio.create_task(sandbox.run(Call("import time; time.sleep(60)")))
        given_up = asyncio.create_task(sandbox.run(Call("import time; time.sleep(60)")))
        await sandbox.run(Call("pass"))
        given_up.cancel()
        await asyncio.sleep(0)
    with pytest.raises(SandboxError):
        await waited


async def test_a_server_that_dies_fails_its_calls_and_is_replaced(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.run(Call("import time; time.sleep(60)")))
    await sandbox.run(Call("pass"))
    assert sandbox._connection is not None
    sandbox._connection._popen.kill()
    with pytest.raises(SandboxError):
        await running
    assert (await sandbox.run(Call("print(1)"))).stdout == "1\n"


async def test_the_process_that_stands_ready_takes_the_limits_and_the_files_of_its_call_alone(sandbox: Sandbox) -> None:
    code = """
import os, resource
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], sorted(os.listdir()), os.environ.get("KEY"))
"""
    first = await sandbox.run(Call(code, files={"mine": b"1"}, env={"KEY": "secret"}, limits=Limits(open_files=40)))
    second = await sandbox.run(Call(code, limits=Limits(open_files=90)))
    assert (first.stdout, second.stdout) == ("40 ['mine'] secret\n", "90 [] None\n")
    full = "open('big', 'wb').write(bytes(1 << 20))"
    small = await sandbox.run(Call(full, limits=Limits(disk_bytes=1 << 19)))  # of another shape
    assert (small.exit, (await sandbox.run(Call(full))).exit) == (1, 0)


async def test_a_process_that_stands_ready_and_dies_is_not_missed(sandbox: Sandbox) -> None:
    for _ in range(3):
        assert (await sandbox.run(Call("print(1)"))).stdout == "1\n"
        await kill_what_stands_ready(sandbox)


async def kill_what_stands_ready(sandbox: Sandbox) -> None:
    """And see it gone."""
    await until(lambda: standing_ready(sandbox))
    killed = {*standing_ready(sandbox)}
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await until(lambda: not killed & {*standing_ready(sandbox)})


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def standing_ready(sandbox: Sandbox) -> list[int]:
    """What stands ready in a sandbox: the great-grandchildren of its launcher, below those that serve calls."""
    assert sandbox._connection is not None
    generation = [sandbox._connection._popen.pid]
    for _ in range(3):
        generation = [child for pid in generation for child in children_of(pid)]
    return generation


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it may end meanwhile
            found += map(int, thread.read_text().split())
    return found


async def test_a_process_that_stays_is_spoken_to_and_works_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    tmp_path.chmod(0o711)
    (tmp_path / "another").mkdir()
    code = """
import os, socket
with socket.socket(fileno=3) as wire:
    open("made", "w").write("x")
    wire.send(repr((os.getcwd(), os.path.exists("../another"))).encode())
    wire.recv(1)
"""
    async with Sandbox(own=tmp_path) as sandbox:
        os.chown(folder, sandbox.user, -1)
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            given = Limits(wall_seconds=None, cpu_seconds=None, memory_bytes=None)
            process = await sandbox.spawn(
                Call(code, workspace=folder, limits=given), [null, null, null, theirs.fileno()]
            )
        finally:
            theirs.close()
            os.close(null)
        assert await asyncio.to_thread(ours.recv, 1000) == repr((str(folder), False)).encode()
        assert (folder / "made").read_text() == "x"
        ours.close()
        assert (await process.ended).exit == 0
        with pytest.raises(UsageError, match="not below"):
            await sandbox.spawn(Call("pass", workspace=Path("/usr")), [])


def test_a_call_names_what_it_runs_and_no_file_elsewhere() -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        Call()
    with pytest.raises(UsageError, match="is not a name below the workspace"):
        Call("pass", files={"../x": b""})


async def test_modules_are_at_hand_and_random_numbers_differ() -> None:
    async with Sandbox(["random", "fractions"]) as sandbox:
        call = Call("import sys; print('fractions' in sys.modules); import random; print(random.random())")
        first, second = [(await sandbox.run(call)).stdout.splitlines() for _ in range(2)]
    assert first[0] == second[0] == "True"
    assert first[1] != second[1]


async def test_what_a_warm_up_says_is_no_call_s_output() -> None:
    async with Sandbox(["json"], warm_up="print('warm')") as sandbox:
        assert [(await sandbox.run(Call("print(1)"))).stdout for _ in range(2)] == ["1\n", "1\n"]


async def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(SandboxError, match="no_such_module cannot be imported"):
        await Sandbox(["no_such_module"]).start()


async def test_this_machine_is_known() -> None:
    found = await capabilities()
    assert found.root == (os.geteuid() == 0)
    assert not found.guards & found.lacks.keys()
    if found.level == "boundary":
        require("boundary", found)


def test_code_nobody_read_is_refused_without_a_boundary() -> None:
    weak = Capabilities(frozenset({"landlock_files"}), {"user": "not allowed"}, root=False)
    assert weak.level == "partial"
    with pytest.raises(SandboxUnavailable, match="BENCHMAX_SANDBOX_INSIST=1"):
        require("boundary", weak)
    assert "max_user_namespaces" in weak.advice()["user"]
    require("partial", weak)
    require("boundary", weak, insist=True)


async def test_a_sandbox_with_a_guard_missing_does_not_start_unless_insisted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCHMAX_SANDBOX_INSIST", raising=False)
    with pytest.raises(SandboxUnavailable):
        await Sandbox(_without=["seccomp"]).start()
    monkeypatch.setenv("BENCHMAX_SANDBOX_INSIST", "1")
    async with Sandbox(_without=["seccomp"]) as sandbox:
        assert (await sandbox.run(Call("print(1)"))).stdout == "1\n"


async def test_a_port_is_not_left_open_in_silence() -> None:
    with pytest.raises(SandboxUnavailable, match="No port can be closed"):
        await Sandbox(network="host", closed_ports=(80,), _without=["landlock_tcp"]).start()


WITHOUT_NAMESPACES = """
import asyncio, pathlib
from benchmax.errors import SandboxUnavailable
from benchmax.sandbox import Call, Sandbox, capabilities
pathlib.Path("/proc/sys/user/max_user_namespaces").write_text("0")
async def main():
    found = await capabilities()
    print(found.level, *sorted(found.advice()))
    try:
        await Sandbox(insist=False).start()
    except SandboxUnavailable as error:
        print("refused")
    async with Sandbox(insist=True) as sandbox:
        result = await sandbox.run(Call("print(1); open('/etc/shadow')"))
        print(result.stdout, "PermissionError" in result.stderr)
asyncio.run(main())
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0, reason="takes a user namespace to make a poor one"
)
def test_a_machine_without_namespaces_says_so_refuses_and_holds_what_it_can() -> None:
    command = ["unshare", "-Ur", sys.executable, "-c", WITHOUT_NAMESPACES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    level, *rest = done.stdout.split()
    assert level == "partial"
    assert "user," in rest
    assert rest[-3:] == ["refused", "1", "True"]


KILLED_IN_A_CALL = """
import asyncio, os
from benchmax.sandbox import Call, Sandbox
async def main():
    async with Sandbox(insist=True, _without=["mount"]) as sandbox:
        await sandbox.run(Call("open('here', 'w')"))
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_folders_of_a_killed_caller_are_removed_by_the_next(monkeypatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # which other users may pass, unlike pytest's
        os.chmod(folder, 0o711)
        await _killed_and_next(Path(folder), monkeypatch)


async def _killed_and_next(tmp_path: Path, monkeypatch) -> None:
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", KILLED_IN_A_CALL], env=variables, timeout=60).returncode == -9
    [left] = tmp_path.glob("benchmax-calls-*")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Sandbox(insist=True, _without=["mount"]) as sandbox:
        assert (await sandbox.run(Call("print(1)"))).exit == 0
        assert not left.exists()
    assert list(tmp_path.glob("benchmax-calls-*")) == []


def test_an_event_of_a_closed_descriptor_is_not_taken_for_that_of_its_number_s_next_owner() -> None:
    server = object.__new__(Server)
    called: list[str] = []

    def close_the_other() -> None:
        server._on[8] = lambda: called.append("would block")

    server._on = {7: close_the_other, 8: lambda: called.append("closed")}
    server._serve([(7, 1), (8, 1), (9, 1)])
    assert called == []
    server._serve([(8, 1)])
    assert called == ["would block"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a cgroup is root's to make")
async def test_all_calls_together_are_bounded_by_a_cgroup_where_there_is_one() -> None:
    found = await capabilities()
    if "cgroup" not in found.guards:
        assert "no cgroup" in found.lacks["cgroup"]
        pytest.skip(found.lacks["cgroup"])
    code = """
import os, time
made = 0
try:
    while made < 60:
        if os.fork() == 0:
            time.sleep(20)
        made += 1
except OSError:
    print("refused after", made)
"""
    async with Sandbox(group=Limits(processes=40), insist=True) as sandbox:
        made = _groups()
        assert made
        assert "refused after" in (await sandbox.run(Call(code))).stdout
    async with Sandbox() as sandbox:
        assert "refused" not in (await sandbox.run(Call(code))).stdout
    assert not any(group.exists() for group in made)


def _groups() -> list[Path]:
    """Those of this process's children: sandboxes of other processes come and go meanwhile."""
    own = {str(child.pid) for child in psutil.Process().children(recursive=True)}
    return [path for path in Path("/sys/fs/cgroup").glob("**/benchmax-*") if path.name.removeprefix("benchmax-") in own]


@pytest.mark.parametrize("modules", [[], ["fractions"]])
async def test_with_a_closed_port_files_are_moved_as_ever(modules: list[str]) -> None:
    code = """
import os, socket
os.mkdir("a"); os.mkdir("b"); open("a/x", "w").close()
os.rename("a/x", "b/x")
for port in (9, 10):
    try:
        socket.create_connection(("127.0.0.1", port), 5)
    except OSError as error:
        print(type(error).__name__)
"""
    async with Sandbox(modules, network="host", closed_ports=(9,), insist=True) as sandbox:
        if "landlock_tcp" not in (await sandbox.start()).guards:
            pytest.skip("this kernel cannot close ports")
        result = await sandbox.run(Call(code, limits=Limits(network="host")))
    assert result.stdout.split() == ["PermissionError", "ConnectionRefusedError"], result.stderr
