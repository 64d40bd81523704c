"""The small files in a run directory by which runner and child tell each other things. Each is replaced whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.platform.store import json_size
from benchmax.platform.store.plain_files import read_plain

LAUNCH_FILE = "launch.json"
"""What was asked for; the runner's."""
PROCESS_FILE = "process.json"
"""Which process was started, in which slots; the runner's."""
CHILD_FILE = "child.json"
"""What the child does before it trains, with a heartbeat; the child's."""
EXIT_FILE = "exit.json"
"""`{"code", "reason", "pid"}`, the child's last act: the exit code of an adopted child is not ours to see."""


NOTE_BYTES = 64 * 1024 * 1024


def read_note(path: Path) -> dict[str, Any]:
    """The note; empty when there is none."""
    try:
        text = read_plain(path.parent, path.name, NOTE_BYTES)
        value = None if json_size.too_many(text) else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_note(path: Path, note: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8", opener=_private) as file:
            json.dump(note, file)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
