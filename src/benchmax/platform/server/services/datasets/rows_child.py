"""`python -m …datasets.rows_child`: reads a dataset that cannot be read piece by piece, in a process of its own.

A Parquet file of a few bytes can unfold into gigabytes, a JSON file of sixty megabytes into thirty times that. This
process has limits on memory and time, and prints only what the server asked for.
"""

from __future__ import annotations

import json
import resource
import sys
from itertools import islice
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
    from benchmax.envs.datasets.readers import read_rows
    from benchmax.platform.server.services.datasets import preview

    file = Path(asked["file"])
    if asked["do"] == "preview":
        _say("answer", preview.make_preview(file, asked["limit"], asked["environment"]))
    elif asked["do"] == "check":
        _say("answer", {"rows": preview.check_file(file, asked["path"], asked["environment"])})
    elif asked["do"] == "count":
        _say("answer", {"rows": sum(1 for _ in read_rows(file))})
    elif asked["do"] == "first":
        for found in islice(read_rows(file), asked["count"]):
            _say("row", found.data)
        _say("end")
    else:
        for row in preview.readable_rows(file, asked["path"]):
            _say("row", row)
        _say("end")


def _say(kind: str, value: Any = None) -> None:
    sys.stdout.write(json.dumps([kind, value], default=str) + "\n")


if __name__ == "__main__":
    sys.exit(main())
