"""The node agent: one process per machine that runs MCP servers for rollouts.

    python -m benchmax.envs.mcp.agent --workdir FOLDER --servers 20 --listen 127.0.0.1:8080

The secret comes from the first line of standard input with --lifeline, or from the variable BENCHMAX_MCP_SECRET. When
the agent can serve, it prints one line, `{"ready": {"address": …, …}}`; when it cannot, `{"failed": "why"}`. With
--setup-for, `{"setup": "begins", …}` and `{"setup": "ends", …}` come before, when setup.sh is run.

Clients connect to `/agent` as a WebSocket, with `Authorization: Bearer <secret>`. On it go frames (remote/wire.py), any
number at once: {"id": 1, "op": "call", …} out, {"id": 1, "ok": …} or {"id": 1, "error": …} back. A rollout's token is
given by `open` and named in everything else. When a connection ends, so do the rollouts opened on it. There are also
plain HTTP routes for one rollout each, see gateway.py.

With --lifeline the agent ends when its standard input does: it never outlives the process that started it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import WSMsgType, web

from benchmax import limits
from benchmax.config import home
from benchmax.envs.mcp.agent.auth import MIN_SECRET_CHARS, bearer, host_checked, refusal, same
from benchmax.envs.mcp.agent.gateway import Gateway, errors_as_json
from benchmax.envs.mcp.agent.install import Installed, install
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.agent.rollout_dirs import claimed, remove, sweep
from benchmax.envs.mcp.agent.setup_cache import SetupCache
from benchmax.envs.mcp.agent.workspace_files import Incoming
from benchmax.envs.mcp.fork.fork_server_client import end_children
from benchmax.envs.mcp.fork.sandbox import adopt_orphans, hide
from benchmax.envs.mcp.workdir import Workdir, memory_bytes, read_workdir
from benchmax.envs.remote.wire import MESSAGE_BYTES, Frames, describe, next_frames, pack
from benchmax.errors import BenchmaxError, UsageError

T = TypeVar("T")
SECRET_VARIABLE = "BENCHMAX_MCP_SECRET"
PROTOCOL = 1
LAST_SECONDS = 4.0
"""From the end of the lifeline to the end of the agent, whatever it is doing."""


class Connection:
    """One client: what it asked, and what it holds."""

    def __init__(self, node: Node, socket: web.WebSocketResponse) -> None:
        self._node = node
        self._socket = socket
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._tokens: set[str] = set()
        self._incoming: dict[int, Incoming] = {}
        self._outbox: list[bytes] = []
        self._posted = asyncio.Event()
        self._ended = False

    async def serve(self) -> None:
        sender = asyncio.ensure_future(self._send())
        frames = Frames()
        self.say({"hello": {"protocol": PROTOCOL, **self._node.told()}})
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    break
                for each in frames.feed(message.data):
                    self._heard(each)
        except ValueError:  # not frames: whoever this is, it is not a client
            pass
        finally:
            sender.cancel()
            await self._end()

    def say(self, message: dict[str, Any]) -> None:
        self._outbox.append(pack(message))
        self._posted.set()

    async def _send(self) -> None:
        while True:
            await self._posted.wait()
            self._posted.clear()
            while self._outbox:
                await self._socket.send_bytes(next_frames(self._outbox))

    def _heard(self, message: dict[str, Any]) -> None:
        if "cancel" in message:
            if (task := self._tasks.get(message["cancel"])) is not None:
                task.cancel()
            return
        number = int(message["id"])
        task = asyncio.ensure_future(self._answer(number, message))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        try:
            operation = _OPERATIONS.get(str(message.get("op")))
            if operation is None:
                raise UsageError(f"There is no operation {message.get('op')!r}. Use an agent of the same version.")
            self.say({"id": number, "ok": await operation(self, message)})
        except asyncio.CancelledError:
            self.say({"id": number, "error": {"type": "McpError", "kind": "McpError", "message": "It was given up."}})
            raise
        except Exception as error:
            self.say({"id": number, "error": describe(error)})

    async def open(self, asked: dict[str, Any]) -> dict[str, Any]:
        lease = await self._node.open(str(asked["rollout"]), float(asked["seconds"]), self.say)
        self._tokens.add(lease.token)
        if self._ended:  # it took longer to give up than was waited for it
            await self._node.stock.release(lease.token)
        return {"token": lease.token, "workspace": str(lease.seat.places.workspace)}

    async def close(self, asked: dict[str, Any]) -> None:
        self._tokens.discard(asked["token"])
        await self._node.stock.release(asked["token"])

    async def reset(self, asked: dict[str, Any]) -> None:
        await self._node.stock.reset(asked["token"])

    async def call(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await self._node.stock.call(asked["token"], asked["name"], asked["arguments"], float(asked["seconds"]))

    async def request(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await self._node.request(asked["token"], asked["method"], asked["params"], float(asked["seconds"]))

    async def tools(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        return await self._node.tools(float(asked["seconds"]))

    async def put(self, asked: dict[str, Any]) -> None:
        """A piece of a file; `transfer` ties the pieces together, the last one makes the file appear."""
        transfer = int(asked["transfer"])
        file = self._incoming.get(transfer)
        if file is None:
            file = self._incoming[transfer] = self._node.incoming(asked["token"], asked["path"])
        done = True
        try:
            await asyncio.to_thread(file.write, asked["data"])
            if asked["last"]:
                file.finish()
            done = bool(asked["last"])
        finally:
            if done:
                self._incoming.pop(transfer).__exit__(None, None, None)

    async def get(self, asked: dict[str, Any]) -> dict[str, Any]:
        data, size = await asyncio.to_thread(self._node.read, asked["token"], asked["path"], int(asked["offset"]))
        return {"data": data, "size": size}

    async def check(self, asked: dict[str, Any]) -> None:
        """McpError when the rollout's servers are lost."""
        await self._node.stock.lease(asked["token"]).seat.check()

    async def reward(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await self._node.reward(asked["token"], asked["task"], float(asked["seconds"]), self.say)

    async def warm(self, asked: dict[str, Any]) -> int:
        return await self._node.stock.warm(int(asked["number"]), float(asked["seconds"]))

    async def state(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**self._node.state(), "pids": self._node.stock.pids()}

    async def _end(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=2.0)
        for file in self._incoming.values():
            file.__exit__(None, None, None)
        self._ended = True
        for token in list(self._tokens):
            await self._node.stock.release(token)


_OPERATIONS = {
    "open": Connection.open, "close": Connection.close, "reset": Connection.reset, "call": Connection.call,
    "request": Connection.request, "tools": Connection.tools, "put": Connection.put, "get": Connection.get,
    "check": Connection.check, "reward": Connection.reward, "warm": Connection.warm, "state": Connection.state,
}  # fmt: skip


def make_app(node: Node, secret: str, names: Sequence[str]) -> web.Application:
    """The agent as an HTTP application."""

    async def connect(request: web.Request) -> web.StreamResponse:
        if not same(bearer(request), secret):
            return refusal(401, "unauthorized", "This is not the agent's secret.")
        ws = web.WebSocketResponse(max_msg_size=2 * MESSAGE_BYTES, heartbeat=20.0, compress=False)
        await ws.prepare(request)
        await Connection(node, ws).serve()
        return ws

    app = web.Application(middlewares=[host_checked(names), errors_as_json], client_max_size=2 * limits.MCP_FILE_BYTES)
    app.add_routes([web.get("/agent", connect), *Gateway(node).routes()])
    return app


async def _listen(app: web.Application, listen: str) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if listen.startswith("unix:"):
        path = listen.removeprefix("unix:")
        await web.UnixSite(runner, path).start()
        os.chmod(path, 0o600)
        return runner, listen
    host, _, port = listen.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]") or "127.0.0.1", int(port)).start()
    except (OSError, ValueError) as error:
        await runner.cleanup()
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise UsageError(f"The agent cannot listen on {listen}: {reason}. Choose another port or address.") from None
    bound = runner.addresses[0]
    return runner, f"{host or '127.0.0.1'}:{bound[1]}"


async def serve(options: argparse.Namespace, secret: str, root: Path) -> None:
    """Be the agent until told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.lifeline:
        threading.Thread(target=_watch_lifeline, args=(loop, stop, root), daemon=True).start()
    workdir = read_workdir(options.workdir)
    cache = _setup_cache(options, workdir)
    installed = await _unless(stop, install(workdir, root, cache, options.setup_again, _print))
    if installed is None:
        return
    try:
        await _serve_installed(options, secret, root, workdir, installed, stop)
    finally:
        if installed.entry is not None:
            installed.entry.close()


async def _serve_installed(
    options: argparse.Namespace, secret: str, root: Path, workdir: Workdir, installed: Installed, stop: asyncio.Event
) -> None:
    node = Node(workdir, root, installed, options.servers, options.spares, options.server_memory)
    try:
        names = [*options.allow_host, socket.gethostname()]
        runner, address = await _listen(make_app(node, secret, names), options.listen)
        try:
            _print({"ready": {"address": address, **node.told()}})
            await stop.wait()
        finally:
            await runner.cleanup()
    finally:
        await node.close()


def _setup_cache(options: argparse.Namespace, workdir: Workdir) -> SetupCache | None:
    """Where what setup.sh makes is kept, if it is to be and can be."""
    if options.setup_for is None or workdir.setup_script is None:
        return None
    try:
        return SetupCache(home() / "mcp-setup", workdir, options.setup_for)
    except OSError:  # a home that cannot be written, say
        return None


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives, or None when the agent is told to stop before it is done."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.wait([working])
    return None


def _watch_lifeline(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, root: Path) -> None:
    while os.read(0, 4096):
        pass
    timer = threading.Timer(LAST_SECONDS, _end_at_once, [root])
    timer.daemon = True
    timer.start()
    loop.call_soon_threadsafe(stop.set)


def _end_at_once(root: Path) -> None:
    end_children()
    remove(root)
    os._exit(1)


def _print(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmax.envs.mcp.agent", description="Run MCP servers for rollouts."
    )
    parser.add_argument("--workdir", required=True, help="folder with mcp_config.yaml")
    parser.add_argument("--servers", type=int, default=1, help="rollouts served at once")
    parser.add_argument("--spares", type=int, default=None, help="further seats kept ready; two per core if not told")
    parser.add_argument("--server-memory", default=None, help="what a server may take, such as 512MB")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port, or unix:/path")
    parser.add_argument("--allow-host", action="append", default=[], help="a name clients may call this machine by")
    parser.add_argument("--root", default=None, help="folder for the rollouts' directories; made and removed")
    parser.add_argument("--setup-for", default=None, help="keep what setup.sh makes, for this workdir's name")
    parser.add_argument("--setup-again", action="store_true", help="run setup.sh even if it was run before")
    parser.add_argument("--lifeline", action="store_true", help="read the secret from stdin; end when stdin does")
    return parser.parse_args(arguments)


def _secret(options: argparse.Namespace) -> str:
    given = os.environ.pop(SECRET_VARIABLE, "")
    if options.lifeline:
        given = _first_line(0)
    if len(given) < MIN_SECRET_CHARS:
        raise UsageError(f"The agent needs a secret of at least {MIN_SECRET_CHARS} characters. Set {SECRET_VARIABLE}.")
    return given


def _first_line(fd: int) -> str:
    """Byte by byte, so that nothing after the line is taken."""
    line = b""
    while (byte := os.read(fd, 1)) and byte != b"\n":
        line += byte
    return line.decode("utf-8", "replace")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    hide()
    adopt_orphans()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
    if options.root is None:
        sweep()
    root = Path(options.root) if options.root is not None else claimed("benchmax-mcp-")
    root.mkdir(mode=0o700, exist_ok=True)
    try:
        if options.servers < 1:
            raise UsageError("--servers must be at least 1. Give more.")
        if options.server_memory is not None:
            memory_bytes(options.server_memory)
        asyncio.run(serve(options, _secret(options), root))
    except (BenchmaxError, OSError, ImportError, ValueError) as error:
        _print({"failed": str(error)})
        return 2
    finally:
        end_children()  # what setup.sh left running
        remove(root)
    return 0
