"""The agent: one process per machine that runs MCP servers for rollouts.

    python -m benchmax.envs.mcp.agent --workdir FOLDER --servers 20 --listen 127.0.0.1:8080

The secret is the variable BENCHMAX_MCP_SECRET, or with --end-with-stdin the first line of standard input; with that
option the agent ends when its standard input does, so that it never outlives the process that started it.

When the agent can serve, it prints one line, `{"ready": {"address": …, …}}`; when it cannot, `{"failed": "why"}`. With
--setup-for, it prints `{"setup": "begins", …}` and `{"setup": "ends", …}` before, if setup.sh runs.

connection.py describes the protocol of its clients, http_routes.py what else it answers over HTTP.
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

from aiohttp import web

from benchmax.config import home
from benchmax.envs.mcp.agent.auth import MIN_SECRET_CHARS
from benchmax.envs.mcp.agent.connection import make_app
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.server_config import memory_bytes
from benchmax.envs.mcp.setup.cache import SetupCache
from benchmax.envs.mcp.setup.install import Installed, install
from benchmax.envs.mcp.workdir import Workdir, read_workdir
from benchmax.envs.remote.reaper import end_children
from benchmax.errors import BenchmaxError, UsageError
from benchmax.files.temp_dirs import make_owned_dir, remove_orphaned_dirs, remove_tree
from benchmax.sandbox.inside import kernel

T = TypeVar("T")
SECRET_VARIABLE = "BENCHMAX_MCP_SECRET"
LAST_SECONDS = 4.0
"""How long the agent may take to end after its standard input did, whatever it is doing."""


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
    """Run the agent until a signal, or the end of its standard input, stops it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.end_with_stdin:
        threading.Thread(target=_end_with_stdin, args=(loop, stop, root), daemon=True).start()
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
    node = Node(workdir, root, installed, options.servers, options.spares, options.server_memory, options.close_port)
    try:
        await node.prepare()
        names = [*options.allow_host, socket.gethostname()]
        runner, address = await _listen(make_app(node, secret, names), options.listen)
        try:
            _print({"ready": {"address": address, **node.about()}})
            await stop.wait()
        finally:
            await runner.cleanup()
    finally:
        await node.close()


def _setup_cache(options: argparse.Namespace, workdir: Workdir) -> SetupCache | None:
    """Where the results of setup.sh are kept, if they are to be."""
    if options.setup_for is None or workdir.setup_script is None:
        return None
    try:
        return SetupCache(home() / "mcp-setup", workdir, options.setup_for)
    except OSError:  # such as a read-only home
        return None


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work, or None when the agent is stopped before."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.wait([working])
    return None


def _end_with_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, root: Path) -> None:
    while os.read(0, 4096):
        pass
    timer = threading.Timer(LAST_SECONDS, _end_at_once, [root])
    timer.daemon = True
    timer.start()
    loop.call_soon_threadsafe(stop.set)


def _end_at_once(root: Path) -> None:
    end_children()
    remove_tree(root)
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
    parser.add_argument("--spares", type=int, default=None, help="further servers kept ready; two per core by default")
    parser.add_argument("--server-memory", default=None, help="memory limit of a server, such as 512MB")
    parser.add_argument("--close-port", action="append", type=int, default=[], help="a port closed to the servers")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port, or unix:/path")
    parser.add_argument("--allow-host", action="append", default=[], help="a host name that clients may use")
    parser.add_argument("--root", default=None, help="folder for the rollouts' directories; made and removed")
    parser.add_argument("--setup-for", default=None, help="keep what setup.sh installs, under this name of the workdir")
    parser.add_argument("--setup-again", action="store_true", help="run setup.sh even if its result is kept")
    parser.add_argument("--end-with-stdin", action="store_true", help="read the secret from stdin; end when it ends")
    return parser.parse_args(arguments)


def _secret(options: argparse.Namespace) -> str:
    given = os.environ.pop(SECRET_VARIABLE, "")
    if options.end_with_stdin:
        given = _first_line(0)
    given = given.strip()  # of the newline of a file, which no header can contain
    if len(given) < MIN_SECRET_CHARS:
        raise UsageError(f"The agent needs a secret of at least {MIN_SECRET_CHARS} characters. Set {SECRET_VARIABLE}.")
    return given


def _first_line(fd: int) -> str:
    """Read byte by byte, so that nothing after the line is consumed."""
    line = b""
    while (byte := os.read(fd, 1)) and byte != b"\n":
        line += byte
    return line.decode("utf-8", "replace")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    root: Path | None = None
    try:
        _require_linux()
        kernel.set_visible(False)
        kernel.adopt_orphans()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
        root = _make_root(options)
        if options.servers < 1:
            raise UsageError("--servers must be at least 1. Give more.")
        if options.server_memory is not None:
            memory_bytes(options.server_memory)
        asyncio.run(serve(options, _secret(options), root))
    except (BenchmaxError, OSError, ImportError, ValueError) as error:
        _print({"failed": str(error)})
        return 2
    finally:
        if root is not None:
            end_children()  # what setup.sh left running
            remove_tree(root)
    return 0


def _require_linux() -> None:
    """UsageError on a system without the calls that a sandbox makes."""
    if not hasattr(socket, "SOCK_SEQPACKET") or not hasattr(os, "pipe2") or not hasattr(os, "memfd_create"):
        raise UsageError(
            f"MCP servers run on Linux, not on {sys.platform}. Start an agent on a Linux machine, and use it here with "
            "ManualProvisioner."
        )


def _make_root(options: argparse.Namespace) -> Path:
    if options.root is None:
        remove_orphaned_dirs()
        return make_owned_dir("benchmax-mcp-")
    Path(options.root).mkdir(mode=0o700, exist_ok=True)
    return Path(options.root)
