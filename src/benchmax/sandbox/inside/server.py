"""The fork server: takes calls over a socket, puts each into a room of its own, and ends it at its limits.

    client → server   {"call": 7, "fork": true, "shape": {…}, "limits": {…}, "ports": […]}
                      + what to run, and the code's descriptors 0, 1, 2, …
                      {"kill": 7, "by": "output"} or {"signal": 7, "as": 10}
    server → client   {"ready": null, "guards": […], "lacks": {…}, "user": 1000}
                      or {"ready": "why there is no sandbox"}
                      {"started": 7}
                      {"ended": 7, "status": 0, "by": null, "refused": […], "cpu": 0.1, "memory": 9000000}
                      + a descriptor of its workspace
                      {"failed": 7, "reason": "…"}

One packet is one message. The server is pid 1 of a pid namespace that holds all calls: when it ends, they do. It never
reads what a call runs, and a call cannot reach it: its socket is closed, its process not to be seen.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from . import body, kernel, seccomp, zygote
from .room import Room
from .root import readable
from .watch import Usage, children

LOOK_SECONDS = 0.05
LOOK_SHARE = 0.1
"""Of its time, at most, that the server spends looking at what calls use."""
MOST_REFUSALS = 16
"""Told of one call; what it tries after these is refused without a word."""


OWN = ("/etc", "/proc")
MACHINE = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/kernel")
"""What Landlock opens besides: of the tree that is made for calls, or of the machine's where there is no other."""


class Running:
    """One call."""

    def __init__(self, order: dict[str, Any], fds: list[int]) -> None:
        self.order, self.fds = order, fds
        self.number = int(order["call"])
        self.room: Room | None = None
        self.pid = 0
        self.line: socket.socket | None = None
        self.listener = -1
        self.usage: Usage | None = None
        self.deadline: float | None = None
        self.status: int | None = None
        self.by: str | None = None
        self.failed: str | None = None
        self.refused: list[str] = []
        self.told = 0


class Server:
    def __init__(self, sock: socket.socket, setup: dict[str, Any], guards: frozenset[str], lacks: Any) -> None:
        self._sock, self._setup, self._guards, self._lacks = sock, setup, guards, lacks
        self._roomy = bool(guards & {"pid", "mount", "ipc", "net"})
        self._read = [*readable(setup["read"]), *(OWN if "mount" in guards else MACHINE)]
        self._pidns = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._on: dict[int, Callable[[], None]] = {}
        self._calls: dict[int, Running] = {}
        self._spares: list[Room] = []
        self._making = False
        self._zygote: socket.socket | None = None
        self._data_bytes = 0
        self._next_look = 0.0
        self._over = False

    def run(self) -> None:
        """Until the client is gone."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # also bounds descriptors on their way to a zygote
        seccomp.prepare()
        zygote.settle()
        self._listen(self._sock.fileno(), self._hear)
        if not self._roomy:
            kernel.adopt_orphans()
        if self._setup["modules"] and self._roomy:
            self._start_zygote()
        else:
            self._ready({"ready": None, "data": zygote._data_bytes()})
        while not self._over:
            self._serve(self._poll.poll(self._pause()))
            self._look()

    def _serve(self, events: list[tuple[int, int]]) -> None:
        """What was closed meanwhile is passed over, also where its number is another's by now, which would block."""
        for fd, then in [(fd, self._on.get(fd)) for fd, _ in events]:
            if then is not None and self._on.get(fd) is then:
                then()

    # What is listened to

    def _listen(self, fd: int, then: Callable[[], None]) -> None:
        self._on[fd] = then
        self._poll.register(fd, select.POLLIN | select.POLLHUP)

    def _ignore(self, fd: int) -> None:
        if self._on.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _pause(self) -> float | None:
        """Milliseconds until something is due."""
        due = [call.deadline for call in self._calls.values() if call.deadline is not None]
        if not due:
            return None
        return max(0.0, min([*due, self._next_look]) - time.monotonic()) * 1000 + 1

    def _say(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._sock, [json.dumps(message).encode()], fds or [])
        except OSError:  # the client is gone, as the next read will tell
            pass

    def _hear(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, zygote.PACKET_BYTES, zygote.MOST_FDS)
        except OSError:
            data, fds = b"", []
        if not data:
            self._over = True
            return
        message = json.loads(data)
        if "call" in message:
            self._begin(Running(message, fds))
        elif "signal" in message:
            self._signal(self._calls.get(message["signal"]), message["as"])
        elif message["kill"] in self._calls:
            self._end(self._calls[message["kill"]], message["by"])

    def _signal(self, call: Running | None, number: int) -> None:
        """To a program's first process, which is this one's child until it is reaped."""
        if call is not None and call.pid and call.status is None:
            os.kill(call.pid, number)

    # The zygote

    def _start_zygote(self) -> None:
        self._zygote, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            zygote.live(far, self._setup["modules"], self._setup["warm_up"])
        far.close()
        self._listen(self._zygote.fileno(), self._hear_zygote)

    def _hear_zygote(self) -> None:
        assert self._zygote is not None
        data = self._zygote.recv(zygote.PACKET_BYTES)
        if not data:
            self._over = True  # and with it all calls: the client starts a server anew
            return
        message = json.loads(data)
        if "ready" in message:
            self._ready(message)
        elif (call := self._calls.get(message["ended"])) is not None:
            call.status, call.failed = message["status"], message.get("failed", call.failed)
            self._end(call, None)

    def _ready(self, message: dict[str, Any]) -> None:
        self._data_bytes = message["data"]
        held = {"guards": sorted(self._guards), "lacks": self._lacks, "user": self._setup["user"]}
        self._say({"ready": message["ready"], **held})

    # A call's beginning

    def _begin(self, call: Running) -> None:
        self._calls[call.number] = call
        try:
            if self._roomy:
                self._give_room(call)
            else:
                self._put_in(call)
        except OSError as error:
            call.failed = str(error)
            self._end(call, None)
            if call.room is None:
                self._gone(call)

    def _give_room(self, call: Running) -> None:
        shape = call.order["shape"]
        room = call.room = self._take_spare(shape) or self._new_room(shape)
        self._listen(room.pidfd, lambda: self._gone(call))
        if room.proc >= 0:
            self._put_in(call)
        else:
            self._listen(room.socket.fileno(), lambda: self._room_ready(call, room))

    def _new_room(self, shape: dict[str, Any]) -> Room:
        return Room(shape, self._guards, self._setup, self._pidns)

    def _room_ready(self, call: Running, room: Room) -> None:
        self._ignore(room.socket.fileno())
        try:
            if not room.hear():
                raise OSError(room.reason)
            self._put_in(call)
        except OSError as error:
            call.failed = str(error)
            self._end(call, None)

    def _put_in(self, call: Running) -> None:
        """Have its code forked into its room; from now on its time runs."""
        call.line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        payload, *own = call.fds
        room = call.room.pidfd if call.room is not None else payload
        order = {**call.order, "guards": sorted(self._guards), "room": call.room is not None, "read": self._read}
        order["limits"] = self._limits_of(call.order)
        with far:
            self._fork(call, order, [room, payload, far.fileno(), *own])
        while call.fds:
            os.close(call.fds.pop())
        self._listen(call.line.fileno(), lambda: self._hear_body(call))
        self._time(call)

    def _fork(self, call: Running, order: dict[str, Any], fds: list[int]) -> None:
        if self._zygote is not None and order["fork"]:
            socket.send_fds(self._zygote, [json.dumps(order).encode()], fds)
            return
        call.pid = body.start(order, fds, self._pidns)
        pidfd = os.pidfd_open(call.pid)
        self._listen(pidfd, lambda: self._reap(call, pidfd))

    def _limits_of(self, order: dict[str, Any]) -> dict[str, Any]:
        """A limit on one process's data is told to Python as MemoryError; other programs reserve more than they use."""
        given = order["limits"]
        bound = order["fork"] and given["memory"] < math.inf
        return {**given, "data": given["memory"] + self._data_bytes if bound else 0}

    def _time(self, call: Running) -> None:
        now = time.monotonic()
        call.deadline = now + call.order["limits"]["wall"]
        if len(self._calls) == 1:
            self._next_look = now + LOOK_SECONDS
        own_network = call.room is not None and "net" in self._guards and call.order["shape"]["network"] == "none"
        if "proc" in self._guards and call.room is not None:
            call.usage = Usage(call.room.proc, None, call.order["limits"]["memory"], own_network)
        elif "pid" not in self._guards:
            call.usage = Usage(self._proc, call.pid, call.order["limits"]["memory"], own_network)
        self._say({"started": call.number})

    # While it runs

    def _hear_body(self, call: Running) -> None:
        assert call.line is not None
        data, fds, _, _ = socket.recv_fds(call.line, 4096, 1)
        if fds:
            call.listener = fds[0]
            self._listen(call.listener, lambda: self._refused(call))
            return
        if data:
            call.failed = json.loads(data)["failed"]
        self._ignore(call.line.fileno())
        call.line.close()

    def _refused(self, call: Running) -> None:
        name = seccomp.refusal(call.listener)
        if name is not None and name not in call.refused:
            call.refused.append(name)
        call.told += 1
        if name is None or call.told >= MOST_REFUSALS:
            self._close_listener(call)

    def _close_listener(self, call: Running) -> None:
        if call.listener >= 0:
            self._ignore(call.listener)
            os.close(call.listener)
            call.listener = -1

    def _look(self) -> None:
        """End what is over its time, or at intervals over another limit."""
        now = time.monotonic()
        looking = now >= self._next_look
        for call in list(self._calls.values()):
            if call.deadline is None:
                continue
            if now >= call.deadline:
                self._end(call, "wall")
            elif looking and call.usage is not None:
                self._measure(call, call.usage)
        if looking:
            took = time.monotonic() - now
            self._next_look = time.monotonic() + max(LOOK_SECONDS, took / LOOK_SHARE)

    def _measure(self, call: Running, usage: Usage) -> None:
        usage.look()
        limits = call.order["limits"]
        if usage.memory > limits["memory"]:
            self._end(call, "memory")
        elif usage.cpu > limits["cpu"]:
            self._end(call, "cpu")

    # Its end

    def _reap(self, call: Running, pidfd: int) -> None:
        self._ignore(pidfd)
        os.close(pidfd)
        call.status = os.waitstatus_to_exitcode(os.waitpid(call.pid, 0)[1])
        self._end(call, None)
        if call.room is None:
            self._gone(call)

    def _end(self, call: Running, by: str | None) -> None:
        """Kill all of it. What comes after its own end is no reason any more."""
        call.deadline = None
        call.by = call.by or by
        if call.room is not None:
            empty = call.status is not None and call.room.is_empty()
            call.room.kill()
            if empty:  # but for its pid 1, which runs nothing of the call's
                self._ended(call)
        if call.pid and (call.room is None or "pid" not in self._guards):
            _kill_group(call.pid)

    def _gone(self, call: Running) -> None:
        """Nothing of it is left."""
        self._ended(call)
        if call.room is None:
            self._kill_left()
            return
        self._ignore(call.room.pidfd)
        self._ignore(call.room.socket.fileno())
        call.room.close()
        if call.failed is None:
            self._make_spare(call.room.shape)

    def _ended(self, call: Running) -> None:
        """Say so, once."""
        if self._calls.pop(call.number, None) is None:
            return
        self._close_listener(call)
        for fd in call.fds:
            os.close(fd)
        if call.line is not None and call.line.fileno() >= 0:
            self._hear_last(call)
        workspace = call.room.workspace if call.room is not None else -1
        if call.failed is not None:
            self._say({"failed": call.number, "reason": call.failed})
        else:
            self._say(self._report(call), [workspace] if workspace >= 0 else [])
        if workspace >= 0:
            os.close(workspace)

    def _hear_last(self, call: Running) -> None:
        assert call.line is not None
        if select.select([call.line], [], [], 0)[0]:
            self._hear_body(call)
            self._close_listener(call)
        if call.line.fileno() >= 0:
            self._ignore(call.line.fileno())
            call.line.close()

    def _report(self, call: Running) -> dict[str, Any]:
        status = call.status if call.by is None else -signal.SIGKILL
        by = "cpu" if call.by is None and status == -signal.SIGXCPU else call.by
        used = {"cpu": call.usage.cpu, "memory": call.usage.memory} if call.usage else {"cpu": 0.0, "memory": 0}
        return {"ended": call.number, "status": status, "by": by, "refused": call.refused, **used}

    def _kill_left(self) -> None:
        """Without pid namespaces: what calls detached is this process's child now."""
        known = {call.pid for call in self._calls.values()}
        for pid in children(self._proc, os.getpid()):
            if pid not in known:
                _kill_group(pid)
                os.waitpid(pid, 0)

    # Rooms ahead of time

    def check_rooms(self) -> None:
        """Whether a call could be put up at all; OSError when not."""
        if not self._roomy:
            return
        folder = None if "mount" in self._guards else "/"
        room = self._new_room({"network": self._setup["network"], "disk": 65_536, "workspace": folder})
        ready = room.hear()
        room.kill()
        room.close()
        if not ready:
            raise OSError(room.reason)
        os.close(room.workspace)

    def _take_spare(self, shape: dict[str, Any]) -> Room | None:
        """A room that stands ready; one of another shape is given up, as calls tend to be alike."""
        while self._spares:
            room = self._spares.pop()
            if room.shape == shape:
                return room
            os.close(room.workspace)
            room.kill()
            room.close()
        return None

    def _make_spare(self, shape: dict[str, Any]) -> None:
        if self._spares or self._making or shape["workspace"] is not None:
            return
        try:
            room = self._new_room(shape)
        except OSError:
            return
        self._making = True
        self._listen(room.socket.fileno(), lambda: self._keep_spare(room))

    def _keep_spare(self, room: Room) -> None:
        self._making = False
        self._ignore(room.socket.fileno())
        if room.hear():
            self._spares.append(room)
        else:
            room.kill()
            room.close()


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            pass
