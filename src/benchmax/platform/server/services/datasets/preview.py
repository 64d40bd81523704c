"""What is in a dataset file: its rows, how many are usable, and what is wrong with the others.

`QUESTIONS` are what `bounded_rows` asks about a file, here or in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.catalogue import is_named
from benchmax.envs.datasets.load import check_dataset, iter_examples
from benchmax.envs.datasets.readers import file_format, read_rows, readable_rows
from benchmax.envs.datasets.usable_rows import usable_rows
from benchmax.envs.loading import load_env_class
from benchmax.envs.types import ChatMessage, Example, Messages, RewardValue
from benchmax.errors import DatasetError, UsageError
from benchmax.files import json_size

PREVIEW_ROWS = 100_000
SAMPLE_BYTES = 8 * limits.MIB
"""Of the rows in one preview, as JSON."""
ROWS_BYTES = 32 * limits.MIB
"""Of rows that are kept in memory at one time, as JSON."""
_TRIED_ROWS = 5
"""Rows that show whether a file is for an environment."""
OWN_CODE = "*"
"""In place of an environment's name: its own code reads the rows, so that they can be read is all that is known."""

_ANY_PROMPT: ChatMessage = {"role": "user", "content": "?"}


class AnyColumns(BaseEnv):
    """Takes every row."""

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        text = json.dumps(example, sort_keys=True, default=str)
        return {"id": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), "prompt_messages": [_ANY_PROMPT]}

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        return {}


def row_class(environment: str | None) -> type[BaseEnv] | None:
    """The class whose columns the rows must have. Built-in classes only: no code of a user is loaded here."""
    if environment == OWN_CODE:
        return AnyColumns
    return load_env_class(environment) if environment is not None and is_named(environment) else None


def check_file(file: Path, path: str, environment: str | None) -> Iterator[int]:
    """The usable rows among the first 100,000; DatasetError, with row, column, reason and fix, for one that is not."""
    yield usable_rows(file, path, row_class(environment), outcome="Nothing was launched.", most=PREVIEW_ROWS)


def make_preview(file: Path, limit: int, environment: str | None) -> Iterator[dict[str, Any]]:
    """The first rows, and what is wrong with any of the first 100,000; read as a built-in environment does."""
    env_class = row_class(environment)
    report = check_dataset(file, env_class, limit=PREVIEW_ROWS)
    sample = _sample(file, limit)
    yield {
        "rows": report.rows,
        "usable": report.kept,
        "duplicates": report.duplicates,
        "errors": report.errors,
        "warnings": report.warnings,
        "issues": [
            {"row": each.row, "field": each.column, "severity": each.severity, "message": f"{each.reason} → {each.fix}"}
            for each in report.issues
        ],
        "sample": sample,
        "ids": [_example_id(row, env_class) for row in sample],
    }


def reads_some(environment: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a built-in environment can use one of the first rows."""
    return any(_example_id(row, row_class(environment)) is not None for row in rows[:_TRIED_ROWS])


def _sample(file: Path, limit: int) -> list[dict[str, Any]]:
    """The first rows, as many as a page can show."""
    found: list[dict[str, Any]] = []
    held = json_size.Count(most_bytes=SAMPLE_BYTES)
    for row in islice(read_rows(file), limit):
        if isinstance(row.data, dict):
            text = json.dumps(row.data, default=str)
            if held.add(text.encode("utf-8", "replace")):
                break
            found.append(json.loads(text))
    return found


def readable_objects(file: Path, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file; DatasetError at one that cannot be read, or is no object."""
    for row in readable_rows(file):
        if not isinstance(row.data, dict):
            raise DatasetError(f"Row {row.number} of {path} is not an object. Give one object a row.")
        yield row.data


def first_rows(file: Path, count: int) -> Iterator[Any]:
    """The first rows, as they are; UsageError when they are too much to be held."""
    held = json_size.Count(most_bytes=ROWS_BYTES)
    for row in islice(read_rows(file), count):
        if held.add(json.dumps(row.data, default=str).encode()):
            raise UsageError(f"The first rows of {file} are more than can be held at once. Ask for fewer.")
        yield row.data


def count_rows(file: Path) -> Iterator[int]:
    """The number of rows, usable or not."""
    yield count_lines(file) if has_row_per_line(file) else sum(1 for _ in read_rows(file))


def has_row_per_line(path: str | Path) -> bool:
    known = file_format(path)
    return known is not None and known.row_per_line


def count_lines(path: Path) -> int:
    """Non-blank lines, as readers see them, in bounded memory however long a line is."""
    with open(path, "rb") as file:
        wide = file.read(2) in (BOM_UTF16_BE, BOM_UTF16_LE)
    rows, blank = 0, True
    with open(path, encoding="utf-16" if wide else "utf-8-sig", errors="replace", newline="") as text:
        while piece := text.readline(limits.MIB):
            blank = blank and piece.isspace()
            if piece.endswith(("\n", "\r")):
                rows += not blank
                blank = True
    return rows + (not blank)


def _example_id(row: dict[str, Any], env_class: type[BaseEnv] | None) -> str | None:
    try:
        return next(iter_examples([row], env_class, lenient=True))["id"]
    except (DatasetError, StopIteration):
        return None


QUESTIONS: dict[str, Callable[..., Iterator[Any]]] = {
    "preview": make_preview,
    "check": check_file,
    "count": count_rows,
    "first": first_rows,
    "rows": readable_objects,
}
"""Each yields its answers; the first three have one."""
