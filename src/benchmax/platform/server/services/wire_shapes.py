"""Rows of the store as shapes of the wire, which call some columns by other names.

A field that has the name of a column is filled from it. So whatever not every reader may see, and whatever means
something else on the wire, must be given by hand: `notes` of a run, `revoked` of a key, which is a time in its row.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)

COLUMNS = {
    "created_at": ("created", "time"),
    "updated_at": ("updated",),
    "started_at": ("started",),
    "ended_at": ("ended",),
    "expires_at": ("expires",),
    "last_used_at": ("last_used",),
    "latest_activity_message": ("activity",),
    "mode": ("split",),
    "prompt_message_id": ("example_id",),
    "rewards": ("components",),
    "status_reason": ("reason",),
    "total_reward": ("reward",),
    "type": ("kind",),
}
"""Fields of the wire, and what the store calls them."""


def shape(kind: type[T], row: Any, **given: Any) -> T:
    """A row as a shape: `given`, and for every other field the column of its name, or of the one in COLUMNS."""
    known = {name: getattr(row, column) for name, column in _columns(kind, row.__class__) if name not in given}
    return kind.model_validate(known | given)


@cache
def _columns(kind: type[BaseModel], table: type) -> tuple[tuple[str, str], ...]:
    """The fields that a table fills, each with its column."""
    names = ((field, (*COLUMNS.get(field, ()), field)) for field in kind.model_fields)
    found = ((field, next((name for name in those if hasattr(table, name)), None)) for field, those in names)
    return tuple((field, column) for field, column in found if column is not None)
