"""The small files in a run directory by which runner and child tell each other things. Each is replaced whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.files import json_size
from benchmax.files.atomic import write_text
from benchmax.files.links import read_plain

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
    write_text(path, json.dumps(note), private=True, durable=False)
