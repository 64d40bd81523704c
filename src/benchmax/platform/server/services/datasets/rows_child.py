"""`python -m …datasets.rows_child`: reads a dataset that cannot be read piece by piece, in a process of its own.

A Parquet file of a few bytes can unfold into gigabytes, a JSON file of sixty megabytes into thirty times that. This
process has limits on memory and time, and prints only what the server asked for.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

MEMORY_BYTES = 1024 * 1024 * 1024
CPU_SECONDS = 120


def main() -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from benchmax.errors import UsageError

    try:
        _answer(json.load(sys.stdin))
    except UsageError as error:
        _say("error", str(error))
    except MemoryError:
        return 1
    return 0


def _answer(asked: dict[str, Any]) -> None:
    from benchmax.platform.server.services.datasets.preview import QUESTIONS

    for value in QUESTIONS[asked["do"]](Path(asked["file"]), **asked["more"]):
        _say("answer", value)
    _say("end")


def _say(kind: str, value: Any = None) -> None:
    sys.stdout.write(json.dumps([kind, value], default=str) + "\n")


if __name__ == "__main__":
    sys.exit(main())
