"""An optional warm LibreOffice in the sandbox, asked for the values that ironcalc cannot compute.

It is used when `soffice` is installed and some Python can import its `uno` (on Debian, the packages
libreoffice-calc-nogui and python3-uno). It starts with the first question. What it does not answer stays unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.errors import BenchmaxError
from benchmax.sandbox import Call, Limits, Sandbox

logger = logging.getLogger(__name__)

PROGRAM = Path(__file__).parent / "workbooks" / "libreoffice.py"
_READ = ("/etc/libreoffice", "/var/lib/libreoffice", "/var/spool/libreoffice", "/etc/fonts")
_PYTHONS = ("/usr/bin/python3", "/usr/lib/libreoffice/program/python")
_START_SECONDS = 90.0
_LINE_BYTES = 32 * limits.MIB
_LIMITS = Limits(
    wall_seconds=None, cpu_seconds=None, memory_bytes=2 * limits.EXCEL_MEMORY_BYTES, disk_bytes=limits.EXCEL_FILE_BYTES
)


@cache
def python_with_uno() -> str | None:
    """A Python that can speak to LibreOffice; None when there is none, or no LibreOffice."""
    if sys.platform != "linux" or shutil.which("soffice") is None:
        return None
    for python in _PYTHONS:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([python, "-c", "import uno"], check=True, capture_output=True, timeout=_START_SECONDS)
            return python
    return None


def needs_opinion(read: Mapping[str, Any]) -> bool:
    """Whether there is a cell whose value ironcalc cannot compute."""
    tables = [read["cells"], *read["cases"]]
    return any(_unknown(value) for cells in tables for values in cells.values() for value in values.values())


def with_opinion(read: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The values with LibreOffice's in place of unknown ones."""
    cases = [_merged(ours, theirs) for ours, theirs in zip(read["cases"], found["cases"], strict=True)]
    return {**read, "cells": _merged(read["cells"], found["cells"]), "cases": cases}


def _merged(ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    def settled(sheet: str, name: str, value: Any) -> Any:
        found = theirs.get(sheet, {}).get(name, value)
        return found if _unknown(value) and not _unknown(found) else value

    return {sheet: {name: settled(sheet, name, each) for name, each in cells.items()} for sheet, cells in ours.items()}


def _unknown(value: Any) -> bool:
    return isinstance(value, dict) and "unknown" in value


class SecondOpinion:
    """One LibreOffice, one question at a time, on one event loop."""

    def __init__(self, seconds: float = limits.EXCEL_CALL_SECONDS) -> None:
        self._seconds = seconds
        self._sandbox: Sandbox | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._turn = asyncio.Lock()

    async def values(
        self, content: bytes, cells: Mapping[str, Sequence[str]], cases: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any] | None:
        """The cells as LibreOffice computes them, also after each case's changes; None when it has no answer."""
        async with self._turn:
            try:
                if self._sandbox is None:
                    await asyncio.wait_for(self._start(), _START_SECONDS)
                return await asyncio.wait_for(self._ask(content, cells, cases), self._seconds)
            except (TimeoutError, OSError, ValueError, BenchmaxError) as error:
                logger.info("LibreOffice has no answer: %s: %s", type(error).__name__, error)
                await self._end()
                return None
            except asyncio.CancelledError:
                await self._end()  # its answer, still to come, would be read as that to the next question
                raise

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    async def _start(self) -> None:
        python = await asyncio.to_thread(python_with_uno)
        if python is None:
            raise FileNotFoundError("LibreOffice is not installed")
        self._sandbox = Sandbox(read=[PROGRAM.parent, *_READ])
        call = Call(argv=[python, "-I", str(PROGRAM)], limits=_LIMITS)
        _, self._reader, self._writer = await self._sandbox.spawn_on_line(call, (0, 1), 3, _LINE_BYTES)
        await self._line()  # that it is ready

    async def _ask(
        self, content: bytes, cells: Mapping[str, Sequence[str]], cases: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        assert self._writer is not None
        head = {"size": len(content), "cells": {name: list(each) for name, each in cells.items()}, "cases": list(cases)}
        self._writer.write(json.dumps(head).encode() + b"\n" + content)
        await self._writer.drain()
        answer: dict[str, Any] = json.loads(await self._line())
        if "failed" in answer:
            raise ValueError(answer["failed"])
        return answer

    async def _line(self) -> bytes:
        assert self._reader is not None
        line = await self._reader.readline()
        if not line:
            raise OSError("it ended")
        return line

    async def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._sandbox is not None:
            await self._sandbox.close()
        self._sandbox = self._reader = self._writer = None
