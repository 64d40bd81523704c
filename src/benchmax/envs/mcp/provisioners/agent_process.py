"""An agent that this process starts and that ends with it: on this machine, or on a node of a Ray cluster."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmax.errors import EnvDefinitionError
from benchmax.files.temp_dirs import make_owned_dir, remove_orphaned_dirs, remove_tree

START_SECONDS = 1_860.0
"""setup.sh may install a great deal."""
STOP_SECONDS = 4.0
_SANDBOX_LINE = "Sandbox call "
"""The beginning of lines in which the agent reports what a server was refused, or which limit ended it."""
logger = logging.getLogger(__name__)


class AgentProcess:
    """Its directory, `root`, contains the copy of the workdir that it serves.

    Call `prepare`, `start` and `wait_ready` in this order, and `stop` at any time; all but `start` block.
    """

    def __init__(self) -> None:
        self.root = make_owned_dir("benchmax-mcp-")
        self._errors: deque[str] = deque(maxlen=20)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def prepare(self, copy_workdir: Callable[[Path], Any]) -> None:
        remove_orphaned_dirs()
        copy_workdir(self.root / "workdir")

    def start(self, arguments: Sequence[str], secret: str) -> None:
        command = [sys.executable, "-P", "-m", "benchmax.envs.mcp.agent", "--workdir", str(self.root / "workdir")]
        self._process = subprocess.Popen(
            [*command, "--root", str(self.root), "--end-with-stdin", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._keep_errors, daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, as `wait_ready` reports
            self._process.stdin.write(secret.encode() + b"\n")
            self._process.stdin.flush()

    def wait_ready(self, on_setup: Callable[[Mapping[str, Any]], None] = lambda message: None) -> str:
        """The address at which the agent listens; EnvDefinitionError with its reason when it cannot start."""
        while "setup" in (message := self._next_message()):
            on_setup(message)
        if "ready" in message:
            return str(message["ready"]["address"])
        assert self._process is not None
        if not message:
            self._reader.join(STOP_SECONDS)  # what it printed last may not have been read yet
        why = message.get("failed") or "\n".join(self._errors) or f"exit code {self._process.wait()}"
        raise EnvDefinitionError(f"The MCP agent cannot start: {why}")

    def _next_message(self) -> dict[str, Any]:
        """The next line that the agent prints; empty when it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):  # anything else was printed when Python started, by a sitecustomize for example
                return dict(json.loads(line))
        return {}

    def _keep_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                text = line.decode("utf-8", "replace").rstrip()
                self._errors.append(text)
                if text.startswith(_SANDBOX_LINE):
                    logger.warning("%s", text)

    def stop(self) -> None:
        """End the agent and its servers, and remove its directory."""
        if (process := self._process) is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # of a secret that it never read
                process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        remove_tree(self.root)
