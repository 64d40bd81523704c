"""The columns that a row, or a task made from one, must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.errors import UsageError


class MissingColumn(UsageError):
    """A row or task has nothing in a column that is needed."""

    def __init__(self, message: str, column: str, expected: Sequence[str]) -> None:
        super().__init__(message)
        self.column, self.expected = column, tuple(expected)


def require_columns(row: Mapping[str, Any], *names: str) -> None:
    """Raise MissingColumn for a row without one of these columns, or with nothing in it."""
    missing = [name for name in names if row.get(name) in (None, "")]
    _refuse("A row", names, missing, "Add it, or leave the row out.")


def require_task(task: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    """The task; MissingColumn for one without these columns."""
    given = task or {}
    missing = [name for name in names if given.get(name) is None]
    _refuse("A task", names, missing, "Pass the task of an example that dataset_preprocess made.")
    return given


def _refuse(what: str, names: Sequence[str], missing: Sequence[str], advice: str) -> None:
    if missing:
        columns = f"the columns {', '.join(names)}" if len(names) > 1 else f"the column {names[0]}"
        raise MissingColumn(f"{what} needs {columns}; {missing[0]} is missing. {advice}", missing[0], names)
