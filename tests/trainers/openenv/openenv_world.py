"""Servers of OpenEnv's protocol on the loopback, for tests."""

from __future__ import annotations

import re
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

PAGE = Path(__file__).resolve().parents[3] / "docs" / "trainers" / "imports.md"


def page_command(spec: str) -> list[str]:
    """The command of the page that names such an environment, without its first word."""
    (found,) = re.findall(rf"^benchmax (eval {spec}.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return shlex.split(found)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application that listens in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server ended before it listened"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
