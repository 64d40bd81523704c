"""The process that starts MCP servers, watches them, and ends them when it ends.

    python fork_server.py FD [PLAN]   FD: a socket to the agent, one JSON message a packet

    agent → this      {"plan": 0} + the descriptor of a file    once, first: what to import, what may be read
                      {"spawn": 7, "argv": […], "cwd": …, "env": {…}, "own": […], "read": […],
                       "memory": …}
                      + the child's descriptors 0, 1, 2, …
                      {"kill": 7}
    this → agent      {"ready": null, "not_preloaded": {package: why the servers import it themselves}},
                      or {"ready": "why servers cannot be forked from here", …}
                      {"spawned": 7, "pid": 4711}, {"failed": 7, "reason": …},
                      {"ended": 7, "status": -9, "over_memory": false}

With a Python plan, children are forked from this process, which has imported their packages, and run the server
without an exec; otherwise each child executes its command. Packages are imported confined, in an empty directory.
Importing them shows which ones must not be imported here; this process then restarts without those (PLAN).
Every child leads a session of its own, which is killed when the child ends. Processes that it detached become children
of this process, which recognises them by their mark (sandbox.py) and kills them too.
A child whose processes together use more memory than allowed is killed, and its end says so ("over_memory"). Limits of
the kernel do not help: they hold for one process each, and count what Node or Go reserve and never use.
When the agent's end of the socket closes, everything here ends.

Runs under any Python from 3.9 with the standard library alone, as the server's interpreter may lack benchmax and
psutil; so /proc is read by hand here. Linux only.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

MOST_BYTES = 200_000
MOST_FDS = 8
MOST_ROUNDS = 5
"""How often it may restart without packages that must not be imported here."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_ANCESTORS = 1_000
MEASURE_SECONDS = 0.2
"""How often the memory of children that have a limit is measured."""


def _sibling(name: str) -> Any:
    """Load a module of this folder without putting the folder on the path, where servers would find it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("_benchmax_" + name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sandbox = _sibling("sandbox")
preload = _sibling("preload")


class ForkServer:
    def __init__(self, sock: socket.socket, plan_fd: int | None = None) -> None:
        self._sock = sock
        self._plan_fd = plan_fd
        self._children: dict[int, int] = {}  # pid: the agent's number for it
        self._limits: dict[int, int] = {}  # mark: bytes
        self._over_memory: set[int] = set()
        self._next_measure = 0.0
        self._plan: dict[str, Any] = {}
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> Callable[[], None] | None:
        """Serve the agent until it is gone. In a child, returns what the child has to run."""
        plan = self._plan_fd
        if plan is None:
            first = self._receive()
            if first is None:
                return None
            plan = first[1][0]
        with open(plan, encoding="utf-8") as file:
            self._plan = json.load(file)
        sandbox.hide()
        sandbox.adopt_orphans()
        python = self._plan.get("python")
        sandbox.die_with_parent(os.getppid())  # while importing, it does not read the socket
        reason = self._preload(python) if python else None
        sandbox.die_with_parent(None)  # from here on it ends in order, after killing what the servers started
        signal.set_wakeup_fd(self._wake[1])
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._send({"ready": reason, "not_preloaded": self._plan.get("not_preloaded", {})})
        while True:
            pause = MEASURE_SECONDS if self._limits else None
            readable, _, _ = select.select([self._sock.fileno(), self._wake[0]], [], [], pause)
            if self._limits and time.monotonic() > self._next_measure:
                self._check_memory()
            if self._wake[0] in readable:
                os.read(self._wake[0], 4096)
                self._reap()
            if self._sock.fileno() in readable:
                received = self._receive()
                if received is None:
                    self._end()
                    return None
                begin = self._handle(*received)
                if begin is not None:
                    return begin

    def _preload(self, python: dict[str, Any]) -> str | None:
        """Import packages, confined like the servers; restart when one depends on what differs between rollouts."""
        if self._plan["confined"] and self._plan_fd is None:
            sandbox.drop_powers()
            sandbox.confine(self._plan["read"], self._plan["write"], self._plan["listed"])
        excluded = self._plan.get("not_preloaded", {})
        before, variables = set(sys.modules), dict(os.environ)
        _renew_streams()
        watch = preload.ImportWatch(python["own"], python["varying"], excluded)
        watch.begin([python["target"], *python["arguments"]])
        try:
            known = self._plan.get("known", ())
            reason: str | None = preload.preload(watch, python["kind"], python["target"], python["also"], known)
        finally:
            watch.end()
        if watch.found and self._plan.get("round", 0) < MOST_ROUNDS:
            excluded = {**excluded, **watch.found}
            known = [*known, *(name for name in sys.modules if name not in before)]
            known = [name for name in dict.fromkeys(known) if name.partition(".")[0] not in excluded]
            if set(preload.SEEN_AFTERWARDS) & set(watch.found.values()):
                known.reverse()  # imported modules before their importers, so that the right one is blamed
            changed = {"not_preloaded": excluded, "known": known, "round": self._plan.get("round", 0) + 1}
            self._restart({**self._plan, **changed}, variables)
        if watch.found:
            name, what = next(iter(watch.found.items()))
            return f"its package {name} {what} when imported"
        return reason

    def _restart(self, plan: dict[str, Any], variables: dict[str, str]) -> None:
        file = os.memfd_create("plan", 0)
        with open(file, "w", encoding="utf-8", closefd=False) as stream:
            json.dump(plan, stream)
        os.lseek(file, 0, os.SEEK_SET)
        os.set_inheritable(self._sock.fileno(), True)
        script = os.path.abspath(__file__)
        os.execve(sys.executable, [sys.executable, "-u", script, str(self._sock.fileno()), str(file)], variables)

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, MOST_BYTES, MOST_FDS)
        except OSError:
            return None
        return (json.loads(data), fds) if data else None

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._sock.send(json.dumps(message).encode())
        except OSError:  # the agent is gone; the next read ends this process
            pass

    def _handle(self, message: dict[str, Any], fds: list[int]) -> Callable[[], None] | None:
        if "spawn" in message:
            return self._spawn(message, fds)
        if "kill" in message:
            for pid, number in list(self._children.items()):
                if number == message["kill"]:
                    _kill_group(pid)
                    _kill(pid)  # it may not lead its group yet
        return None

    def _spawn(self, message: dict[str, Any], fds: list[int]) -> Callable[[], None] | None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"failed": message["spawn"], "reason": f"cannot fork: {error.strerror}"})
            pid = -1
        if pid == 0:
            return self._begin(message, fds, parent)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self._children[pid] = message["spawn"]
            if message["memory"] is not None:
                self._limits[_mark(parent, message["spawn"])] = message["memory"]
            self._send({"spawned": message["spawn"], "pid": pid})
        return None

    # In the child

    def _begin(self, message: dict[str, Any], fds: list[int], parent: int) -> Callable[[], None]:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        spare = [os.dup(fd) if fd < len(fds) else fd for fd in fds]  # none may be overwritten by another
        for place, fd in enumerate(spare):
            os.dup2(fd, place, inheritable=True)
        self._sock.close()
        os.closerange(len(fds), 1024)
        environment = dict(message["env"])
        os.chdir(message["cwd"])
        try:
            sandbox.hide(False)
            sandbox.limit(self._plan["open_files"], self._plan["file_bytes"])
            sandbox.mark(_mark(parent, message["spawn"]))
            if self._plan["confined"]:
                sandbox.drop_powers()
                sandbox.confine([*self._plan["read"], *message["read"]], message["own"], self._plan["listed"])
            sandbox.die_with_parent(parent)
        except Exception as error:
            _fail(f"cannot be confined: {error}")
        argv, python = message["argv"], self._plan.get("python")
        if python is None:
            _execute(argv, environment)
        os.environ.clear()
        os.environ.update(environment)
        assert python is not None
        return lambda: preload.run(python["kind"], python["target"], argv)

    # The end

    def _check_memory(self) -> None:
        """Kill children whose processes together use more memory than allowed."""
        self._next_measure = time.monotonic() + MEASURE_SECONDS
        taken = dict.fromkeys(self._limits, 0)
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            mark = sandbox.mark_of(pid)
            if mark in taken:
                taken[mark] += _memory(pid)
            elif mark == sandbox.SHED and _descends(pid):
                _kill(pid)  # it removed its mark, so that its memory counts for no child
        for pid, number in self._children.items():
            mark = _mark(os.getpid(), number)
            if mark in taken and taken[mark] > self._limits[mark]:
                self._over_memory.add(number)
                _kill_group(pid)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid in self._children:
                _kill_group(ended.si_pid)  # before it is reaped and its pid is free for others
            _, status = os.waitpid(ended.si_pid, 0)
            number = self._children.pop(ended.si_pid, None)
            if number is not None:
                self._limits.pop(_mark(os.getpid(), number), None)
            self._kill_detached()
            if number is not None:
                self._send({"ended": number, "status": _exit_code(status), "over_memory": number in self._over_memory})

    def _kill_detached(self, all_of_them: bool = False) -> None:
        """Kill what ended servers left running; the children of those become ours when they end."""
        alive = {_mark(os.getpid(), number) for number in self._children.values()}
        for pid in _children_of(os.getpid()):
            if pid in self._children:
                continue
            mark = sandbox.mark_of(pid)
            if all_of_them or (mark is not None and mark not in alive):
                _kill_group(pid)
                _kill(pid)

    def _end(self) -> None:
        for pid in list(self._children):
            _kill_group(pid)
        for _ in range(20):  # orphans become children of this process one generation at a time
            self._kill_detached(all_of_them=True)
            self._children.clear()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            select.select([self._wake[0]], [], [], 0.1)
            os.read(self._wake[0], 4096) if select.select([self._wake[0]], [], [], 0)[0] else None


class _Pipe(io.FileIO):
    """A descriptor that will be a pipe; now it is /dev/null, which can seek."""

    def seekable(self) -> bool:
        return False


def _renew_streams() -> None:
    """Replace the standard streams by ones that packages may keep when imported, as they stay valid in servers."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = _Pipe(fd, "r" if fd == 0 else "w", closefd=False)
        buffer: Any = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(buffer, encoding=old.encoding, errors=old.errors, line_buffering=fd > 0)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        _fail(f"cannot run {argv[0]!r}: {error.strerror}")


def _fail(reason: str) -> None:
    os.write(2, (reason + "\n").encode())
    os._exit(127)


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _mark(parent: int, number: int) -> int:
    """The mark of a child, unique on this machine."""
    return parent << 32 | number


def _memory(pid: int) -> int:
    """The resident memory of a process in bytes, less what it shares through files."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared = file.read().split()[:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass


def _descends(pid: int) -> bool:
    """Whether a process descends from this one."""
    for _ in range(MOST_ANCESTORS):
        if pid in (0, 1, os.getpid()):
            break
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == os.getpid()


def _children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def main() -> None:
    begin = ForkServer(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]) if len(sys.argv) > 2 else None).run()
    if begin is not None:
        sys.excepthook = _print_error
        begin()


def _print_error(kind: Any, error: BaseException, trace: Any) -> None:
    """Print a traceback without the frames of these files."""
    ours = (os.path.abspath(__file__), preload.__file__)
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename) in ours:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder
    main()
