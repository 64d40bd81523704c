"""How a platform is started: where its data are, and the command lines of its three processes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmax.net.ports import DEFAULT_PORT
from benchmax.platform.store.datadir import DataDir

WAIT_SECONDS = 60.0
"""For the server and the runner of a killed daemon to end: they still save, and hold their locks."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a platform is started."""

    data: DataDir
    port: int = DEFAULT_PORT
    database_url: str | None = None
    console: Path | None = None

    def variables(self) -> dict[str, str]:
        """The environment of the processes. A database's address can hold a password, and argv is public."""
        return {**os.environ, "BENCHMAX_DATABASE_URL": self.database_url or ""}

    def server(self) -> list[str]:
        return [*self._argv("server"), *self._address(), "--wait", str(WAIT_SECONDS)]

    def runner(self) -> list[str]:
        return [*self._argv("runner"), "--wait", str(WAIT_SECONDS)]

    def daemon(self) -> list[str]:
        return [*self._argv("daemon"), *self._address()]

    def _argv(self, part: str) -> list[str]:
        return [sys.executable, "-P", "-m", f"benchmax.platform.{part}", "--data", str(self.data.root)]

    def _address(self) -> list[str]:
        return ["--port", str(self.port), *(["--console", str(self.console)] if self.console else [])]
