"""`make check`: what was won stays. Sizes of files and rooms, maps of rooms, and no second spelling of what has a home.

A *home* is the one module that may do a thing; every other module imports it from there. The list below says what it
looks like when somebody does it again.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "benchmax"
MOST_LINES = 450
MOST_MODULES = 15
LEAST_MAPPED = 3
"""A room of fewer modules needs no map."""

HOMES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        r"\bos\.replace\(|\b(?:temporary|part)\.(?:replace|rename)\((?!\")|\"\.tmp-",
        "files/atomic.py",
        ("files/", "trainer/checkpoint.py"),
    ),
    (r"Retry-After\"\)|2(?:\.0)? ?\*\* ?\(?[a-z]", "retries.py", ("retries.py",)),
    (r"\"reward/(?:mean|std|min|max)\"|\"solve_rate\"|\"groups/used\"", "metrics.py", ("metrics.py",)),
    (r"text/event-stream|\"data: ?\"|\"data: \{|\\ndata:|\[DONE\]|b\": ?[\w ]*\\n", "net/sse.py", ("net/sse.py",)),
    (r"\"https?\": (?:80|443)|\"localhost\", \"|\", \"localhost\"", "net/origins.py", ("net/origins.py",)),
    (r"entry_points\(", "plugins.py", ("plugins.py",)),
    (r"\.flock\(", "files/locks.py", ("files/",)),
    (r"\"\.(?:csv|tsv|parquet)\"", "envs/datasets/readers.py", ("envs/datasets/", "cli/platform/runs.py")),
    (r"Did you mean \{\w+\[0\]!r\}", "errors.py", ("errors.py",)),
)
"""A pattern, the home it belongs to, and where it may stand."""


def complaints() -> Iterator[str]:
    rooms: Counter[Path] = Counter()
    for path in sorted(SOURCE.rglob("*.py")):
        text, name = path.read_text("utf-8"), path.relative_to(SOURCE).as_posix()
        rooms[path.parent] += not path.stem.startswith("__")
        if (lines := text.count("\n")) > MOST_LINES:
            yield f"{name} has {lines} lines; at most {MOST_LINES}. Split it by its subjects."
        for pattern, home, allowed in HOMES:
            if not name.startswith(allowed) and (found := re.search(pattern, text)):
                line = text[: found.start()].count("\n") + 1
                yield f"{name}:{line} does what {home} is for: {found[0]!r}. Use that."
    for room, modules in rooms.items():
        if modules > MOST_MODULES:
            yield f"{room.relative_to(SOURCE)} has {modules} modules; at most {MOST_MODULES}. Make rooms in it."
        if modules >= LEAST_MAPPED:
            yield from unmapped(room)


def unmapped(room: Path) -> Iterator[str]:
    """What a room's docstring, its map, does not name."""
    init = room / "__init__.py"
    if not init.is_file():
        return
    named = set(re.findall(r"\w+", ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""))
    inside = {path.stem for path in room.glob("*.py")} | {path.parent.name for path in room.glob("*/__init__.py")}
    for name in sorted(inside - named - {"__init__", "__main__"}):
        yield f"{init.relative_to(SOURCE)} does not name {name}. A room's docstring is its map: say what that is."


def main() -> int:
    found = list(complaints())
    print("\n".join(found) or "The house is in order.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
