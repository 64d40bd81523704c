"""The small JSON files in a child's folder by which runner and child inform each other. Each is replaced whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.files import json_size
from benchmax.files.atomic import object_in, write_text
from benchmax.files.links import read_plain

LAUNCH_FILE = "launch.json"
"""What was asked for; written by the runner."""
PROCESS_FILE = "process.json"
"""Which process was started, in which slots; written by the runner."""
CHILD_FILE = "child.json"
"""`{"pid", "phase", "time"}`, what the child does before it trains, with a heartbeat; written by the child."""
EXIT_FILE = "exit.json"
"""`{"code", "reason", "pid"}`, the child's last act: the runner cannot see the exit code of a child it adopted."""
PLAN_FILE = "plan.json"
"""`{"total"}`, how many rollouts an evaluation has; written by the child."""
REPORT_FILE = "report.json"
"""The result of an evaluation or an examination; written by the child."""
EVALUATING = "evaluating"
"""The phase of a child that evaluates."""

FILE_BYTES = 64 * 1024 * 1024


def read_child_file(path: Path, most: int = FILE_BYTES) -> dict[str, Any]:
    """The JSON object in such a file, of at most so many bytes; empty when there is none. No link is followed."""
    try:
        text = read_plain(path.parent, path.name, most)
    except OSError:
        return {}
    return {} if json_size.too_many(text) else object_in(text) or {}


def write_child_file(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value), private=True, durable=False)
