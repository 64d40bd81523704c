"""The small files in a run directory by which runner and child tell each other things. Each is replaced whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

LAUNCH_FILE = "launch.json"
"""What was asked for; the runner's."""
PROCESS_FILE = "process.json"
"""Which process was started, in which slots; the runner's."""
CHILD_FILE = "child.json"
"""What the child does before it trains, with a heartbeat; the child's."""
EXIT_FILE = "exit.json"
"""`{"code", "reason", "pid"}`, the child's last act: the exit code of an adopted child is not ours to see."""


SECRET_CHARS = 6
"""Shorter values are too common in ordinary text to be hidden."""


def hidden(secrets: Iterable[str]) -> list[str]:
    """The values to hide, the longest first, as they are and as JSON writes them."""
    values = {value for value in secrets if len(value) >= SECRET_CHARS}
    return sorted(values | {json.dumps(value, ensure_ascii=False)[1:-1] for value in values}, key=len, reverse=True)


def hide(text: str, values: Sequence[str]) -> str:
    """The text without the secrets of the run."""
    for value in values:
        text = text.replace(value, "[secret]")
    return text


def read_note(path: Path) -> dict[str, Any]:
    """The note; empty when there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
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
