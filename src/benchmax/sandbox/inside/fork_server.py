"""The fork server: takes calls over a socket, runs each in namespaces of its own, and ends it at its limits.

    client → server   {"call": 7, "fork": "code", "shape": {…}, "limits": {…}, "network": "none", "port": null}
                      + what to run, and the code's descriptors 0, 1, 2, …
                      {"kill": 7, "by": "output"} or {"signal": 7, "as": 10}
    server → client   {"ready": null, "guards": […], "lacks": {…}, "user": 1000}
                      or {"ready": "why there is no sandbox"}
                      {"forker": null, "news": {…}}, or why calls cannot be forked from one that a loader prepares
                      {"started": 7}
                      + a descriptor of its process, where that is wanted
                      {"ended": 7, "status": 0, "by": null, "refused": […], "cpu": 0.1, "memory": 9000000}
                      + a descriptor of its workspace
                      {"failed": 7, "reason": "…"}

One packet is one message. The server is pid 1 of a pid namespace that holds all calls: when it ends, they do. It never
reads what a call runs, and a call cannot reach it: its socket is closed and its process invisible.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import call_process, call_tags, kernel, seccomp, zygote
from .calls import Running, common
from .file_tree import readable
from .namespaces import Namespaces
from .resource_usage import Usage, children, descends, tagged
from .zygote import Zygote

LOOK_SHARE = 0.05
"""The largest share of its time that the server spends on measuring what calls use."""
MOST_REFUSALS = 16
"""Reported of one call; later ones are refused without a report."""
MOST_GENERATIONS = 20


class Server:
    def __init__(self, sock: socket.socket, setup: dict[str, Any], guards: frozenset[str], lacks: Any) -> None:
        self._sock, self._setup, self._guards, self._lacks = sock, setup, guards, lacks
        self._separates = bool(guards & {"pid", "mount", "ipc", "net"})
        self._common = common(setup, guards)
        setup["shown"] = [path for path in readable(setup["read"]) if path.startswith("/tmp/")]
        self._pidns = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._on: dict[int, Callable[[], None]] = {}
        self._calls: dict[int, Running] = {}  # by ticket
        self._spare: Running | None = None
        """A process made ready like the last call's, as calls tend to be alike."""
        self._tickets = itertools.count(1)
        self._zygote: Zygote | None = None
        self._data_bytes = 0
        self._rest_until = 0.0
        self._over = False

    def run(self) -> None:
        """Serve until the client is gone."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # also bounds descriptors on their way to a zygote
        seccomp.prepare()
        zygote.settle()
        self._listen(self._sock.fileno(), self._receive)
        if not self._separates:
            kernel.adopt_orphans()
        forker = self._setup["forker"]
        if forker is not None or not self._setup["modules"]:
            self._ready({"ready": None, "data": zygote.data_bytes()})
        if forker is not None or self._setup["modules"]:
            self._start_zygote(forker and forker["plan"])
        while not self._over:
            self._serve(self._poll.poll(self._pause()))
            self._look()

    def _serve(self, events: list[tuple[int, int]]) -> None:
        """Skip what was closed meanwhile, even if its number belongs to something else by now, which would block."""
        for fd, then in [(fd, self._on.get(fd)) for fd, _ in events]:
            if then is not None and self._on.get(fd) is then:
                then()

    # Events and messages

    def _listen(self, fd: int, then: Callable[[], None]) -> None:
        self._on[fd] = then
        self._poll.register(fd, select.POLLIN | select.POLLHUP)

    def _ignore(self, fd: int) -> None:
        if self._on.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _pause(self) -> float | None:
        """Milliseconds until something is due."""
        due = [call.deadline for call in self._calls.values() if call.deadline is not None]
        due += [max(self._rest_until, call.usage.next) for call in self._calls.values() if call.usage is not None]
        first = min(due, default=math.inf)
        return None if first == math.inf else max(0.0, first - time.monotonic()) * 1000 + 1

    def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._sock, [json.dumps(message).encode()], fds or [])
        except OSError:  # the client is gone, as the next read will show
            pass

    def _receive(self) -> None:
        data, fds = kernel.receive(self._sock, kernel.PACKET_BYTES, call_process.MOST_FDS)
        if not data:
            self._over = True
            return
        message = json.loads(data)
        if "call" in message:
            self._begin(Running(next(self._tickets), message, fds))
            return
        number = message["signal" if "signal" in message else "kill"]
        call = next((call for call in self._calls.values() if call.number == number), None)
        if "kill" in message and call is not None:
            self._end(call, message["by"])
        elif call is not None and call.pid and call.status is None:
            with suppress(OSError):  # its first process may have ended, and the zygote have reaped it
                os.kill(call.pid, message["as"])

    # The zygote

    def _start_zygote(self, plan: dict[str, Any] | None) -> None:
        self._zygote = Zygote(self._common, self._setup, plan, alone=not self._separates)
        self._listen(self._zygote.socket.fileno(), self._receive_from_zygote)

    def _receive_from_zygote(self) -> None:
        assert self._zygote is not None
        message, fds = self._zygote.receive()
        if message is None:
            self._lose_zygote()
        elif "ready" in message:
            self._zygote_ready(message, fds)
        elif (call := self._calls.get(message["forked" if "forked" in message else "ended"])) is None:
            for fd in fds:
                os.close(fd)
        elif "forked" in message:
            call.pid, call.pidfd = message["pid"], fds[0]
            self._send_started(call)
            if call.by is not None:
                self._end(call, None)  # it was ended before it had started
        else:
            call.status = message["status"]
            call.note_failure(message.get("failed"))
            self._finish(call)

    def _zygote_ready(self, message: dict[str, Any], fds: list[int]) -> None:
        assert self._zygote is not None
        self._zygote.prepared, self._data_bytes = True, message["data"]
        if not self._zygote.loads:
            self._ready(message)
            return
        with open(fds[0], encoding="utf-8") as file:
            news = json.load(file)
        if (again := news.pop("again", None)) is not None:
            self._close_zygote(self._zygote)
            self._start_zygote(again)
            return
        self._send({"forker": news.pop("reason"), "news": news})

    def _lose_zygote(self) -> None:
        """Its calls end with it, so the server ends; unless it had not begun to fork, as then calls run without it."""
        assert self._zygote is not None
        if not self._zygote.loads or self._zygote.prepared:
            self._over = True
            return
        self._close_zygote(self._zygote)
        self._send({"forker": "its packages end the interpreter when imported", "news": {}})

    def _close_zygote(self, zygote: Zygote) -> None:
        self._ignore(zygote.socket.fileno())
        zygote.close()
        self._zygote = None

    def _ready(self, message: dict[str, Any]) -> None:
        self._data_bytes = message["data"]
        held = {"guards": sorted(self._guards), "lacks": self._lacks, "user": self._setup["user"]}
        self._send({"ready": message["ready"], **held})

    # A call's beginning

    def _begin(self, call: Running) -> None:
        if (spare := self._spare) is not None and call.may_wait:
            self._spare = None
            if spare.takes(call):
                spare.order, spare.fds, spare.number = call.order, call.fds, call.number
                call = spare
            else:
                self._end(spare, None)
        self._calls[call.ticket] = call
        try:
            if call.line is not None:
                self._hand_over(call)
            elif call.namespaces is None:
                self._make_ready(call)
        except OSError as error:
            self._fail(call, error)

    def _fail(self, call: Running, error: OSError) -> None:
        call.failed = str(error)
        self._finish(call)

    def _make_ready(self, call: Running) -> None:
        if not self._separates:
            self._put_in(call)
            return
        made = call.namespaces = self._new_namespaces(call.order["shape"])
        self._listen(made.pidfd, lambda: self._gone(call))
        self._listen(made.socket.fileno(), lambda: self._namespaces_ready(call, made))

    def _make_spare(self, order: dict[str, Any]) -> None:
        spare = Running(next(self._tickets), {**order, "call": 0}, [])
        if self._spare is not None or not self._separates or not spare.may_wait:
            return
        self._calls[spare.ticket] = self._spare = spare
        try:
            self._make_ready(spare)
        except OSError as error:
            self._fail(spare, error)

    def _new_namespaces(self, shape: dict[str, Any]) -> Namespaces:
        return Namespaces(shape, self._guards, self._setup, self._pidns)

    def _namespaces_ready(self, call: Running, made: Namespaces) -> None:
        self._ignore(made.socket.fileno())
        try:
            ready = made.receive()
            if call.by is not None:
                return  # it was ended before they were ready
            if not ready:
                raise OSError(made.reason)
            self._put_in(call)
        except OSError as error:
            self._fail(call, error)

    def _put_in(self, call: Running) -> None:
        """Fork a process into the namespaces, where it gets ready by itself."""
        call.line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {**call.order, "call": call.ticket, "namespaces": call.namespaces is not None}
        if call.namespaces is None:
            order.update(tag=self._tag(call), reports_pid=True)
        with far:
            self._fork(call, order, [call.namespaces.pidfd if call.namespaces else far.fileno(), far.fileno()])
        self._listen(call.line.fileno(), lambda: self._receive_from_process(call))
        if call.number:
            self._hand_over(call)

    def _hand_over(self, call: Running) -> None:
        """Send what to run to the process that waits for it; its time limit begins now."""
        assert call.line is not None
        if call.failed is None:  # else it is about to end
            socket.send_fds(call.line, [json.dumps(call.limits(self._data_bytes)).encode()], call.fds)
        while call.fds:
            os.close(call.fds.pop())
        self._time(call)
        self._make_spare(call.order)

    def _fork(self, call: Running, order: dict[str, Any], fds: list[int]) -> None:
        if self._zygote is not None and order["fork"]:
            self._zygote.fork(order, fds)
            return
        if order["fork"] == "loaded":
            raise OSError("there is no process to fork it from")
        call.pid, _ = call_process.start({**self._common, **order}, fds, self._pidns)
        pidfd = os.pidfd_open(call.pid)
        call.pidfd = os.dup(pidfd) if order["reports_pid"] else -1
        self._listen(pidfd, lambda: self._reap(call, pidfd))

    def _tag(self, call: Running) -> int:
        return call_tags.unique(os.getpid(), call.ticket)

    def _time(self, call: Running) -> None:
        call.deadline = time.monotonic() + call.order["limits"]["wall"]
        self._watch(call)
        if not call.order["reports_pid"] or call.pid:
            self._send_started(call)

    def _watch(self, call: Running) -> None:
        limits, shape, own = call.order["limits"], call.order["shape"], call.namespaces
        if own is not None and "proc" not in self._guards:
            return
        folder = -1
        if limits["folder"] < math.inf:
            folder = os.dup(own.workspace) if own else os.open(shape["workspace"], os.O_RDONLY | os.O_CLOEXEC)
        own_network = own is not None and "net" in self._guards and shape["network"] == "none"
        call.usage = Usage(own.proc if own else self._proc, folder, limits, own_network)

    def _send_started(self, call: Running) -> None:
        self._send({"started": call.number}, [call.pidfd] if call.pidfd >= 0 else [])
        if call.pidfd >= 0:
            os.close(call.pidfd)
            call.pidfd = -1

    # While it runs

    def _receive_from_process(self, call: Running) -> None:
        assert call.line is not None
        data, fds = kernel.receive(call.line, 4096, 1)
        if fds:
            call.listener = fds[0]
            self._listen(call.listener, lambda: self._refused(call))
            return
        if data:
            call.note_failure(json.loads(data)["failed"])
        self._ignore(call.line.fileno())
        call.line.close()

    def _refused(self, call: Running) -> None:
        name = seccomp.refusal(call.listener)
        if name is not None and name not in call.refused:
            call.refused.append(name)
        call.refusals += 1
        if name is None or call.refusals >= MOST_REFUSALS:
            self._close_listener(call)

    def _close_listener(self, call: Running) -> None:
        if call.listener >= 0:
            self._ignore(call.listener)
            os.close(call.listener)
            call.listener = -1

    def _look(self) -> None:
        """End calls that are over their time and, at intervals, those over another limit."""
        now = time.monotonic()
        for call in list(self._calls.values()):
            if call.deadline is not None and now >= call.deadline:
                self._end(call, "wall")
        if now < self._rest_until:
            return
        due = [call for call in self._calls.values() if call.is_due(now)]
        if due:
            self._measure(due, now)
            took = time.monotonic() - now
            self._rest_until = now + took + took / LOOK_SHARE

    def _measure(self, calls: list[Running], now: float) -> None:
        found = None if self._separates else tagged(self._proc)
        for call in calls:
            assert call.usage is not None
            call.usage.look(now, None if found is None else found.get(self._tag(call), []))
            if (by := call.usage.over()) is not None:
                self._end(call, by)
        for pid in (found or {}).get(call_tags.CHANGED, ()):
            if descends(self._proc, int(pid), os.getpid()):
                kernel.kill_group(int(pid))  # it removed its tag, so that it counts for no call

    # Its end

    def _reap(self, call: Running, pidfd: int) -> None:
        self._ignore(pidfd)
        os.close(pidfd)
        call.status = os.waitstatus_to_exitcode(os.waitpid(call.pid, 0)[1])
        self._finish(call)

    def _finish(self, call: Running) -> None:
        """End what is left of a call whose first process has ended; the end of its namespaces says when all is gone."""
        self._end(call, None)
        if call.namespaces is None:
            self._gone(call)

    def _end(self, call: Running, by: str | None) -> None:
        """Kill all of it. `by` is ignored when it was already being ended."""
        call.deadline = None
        call.by = call.by or by
        if call.namespaces is not None:
            empty = call.status is not None and call.namespaces.is_empty()
            call.namespaces.kill()
            if empty:  # except for its pid 1, which runs nothing of the call
                self._ended(call)
        if call.pid and (call.namespaces is None or "pid" not in self._guards):
            kernel.kill_group(call.pid)

    def _gone(self, call: Running) -> None:
        """Nothing of it is left."""
        self._ended(call)
        if call.namespaces is None:
            self._kill_left()
            return
        self._ignore(call.namespaces.pidfd)
        self._ignore(call.namespaces.socket.fileno())
        call.namespaces.close()

    def _ended(self, call: Running) -> None:
        """Report its end, once."""
        if self._calls.pop(call.ticket, None) is None:
            return
        self._spare = None if self._spare is call else self._spare
        self._close_listener(call)
        if call.usage is not None:
            call.usage.close()
        for fd in [*call.fds, *([call.pidfd] if call.pidfd >= 0 else [])]:
            os.close(fd)
        if call.line is not None and call.line.fileno() >= 0:
            self._receive_last(call)
        workspace = call.namespaces.workspace if call.namespaces is not None else -1
        if not call.number:
            pass  # no call came
        elif call.failed is not None:
            self._send({"failed": call.number, "reason": call.failed})
        else:
            self._send(call.report(), [workspace] if workspace >= 0 and not call.order["reports_pid"] else [])
        if workspace >= 0:
            os.close(workspace)

    def _receive_last(self, call: Running) -> None:
        assert call.line is not None
        if select.select([call.line], [], [], 0)[0]:
            self._receive_from_process(call)
            self._close_listener(call)
        if call.line.fileno() >= 0:
            self._ignore(call.line.fileno())
            call.line.close()

    def _kill_left(self) -> None:
        """Without pid namespaces: kill what ended calls detached; it is a child of this process, with their tag."""
        known = {call.pid for call in self._calls.values()} | ({self._zygote.pid} if self._zygote else set())
        alive = {None, *map(self._tag, self._calls.values())}
        for _ in range(MOST_GENERATIONS):  # what they leave behind becomes a child in turn
            left = [pid for pid in children(self._proc, os.getpid()) if pid not in known]
            left = [pid for pid in left if call_tags.tag_of(pid) not in alive]
            for pid in left:
                kernel.kill_group(pid)
                os.waitpid(pid, 0)
            if not left:
                return

    def check_namespaces(self) -> None:
        """Raise OSError when no namespaces can be made for a call."""
        if not self._separates:
            return
        folder = None if "mount" in self._guards else "/"
        made = self._new_namespaces({"network": self._setup["network"], "disk": 65_536, "workspace": folder})
        ready = made.receive()
        made.kill()
        made.close()
        if not ready:
            raise OSError(made.reason)
        os.close(made.workspace)
