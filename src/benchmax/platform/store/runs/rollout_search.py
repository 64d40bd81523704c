"""What a viewer of rollouts asks before it shows any: how many there are at each step, and where a text occurs.

The outline is one grouped query over the index, so a list of a hundred thousand knows its shape at once and loads only
the steps in view. A text is looked for in the records' own lines, newest first, within a budget: it says how far
it came.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy import Text, case, cast, func, select
from sqlalchemy.orm import Session

from benchmax.files.atomic import object_in
from benchmax.files.links import open_plain
from benchmax.platform.store.clean_text import clean
from benchmax.platform.store.runs.rollouts import matching, ordered
from benchmax.platform.store.tables import RolloutRow

SEARCH_SECONDS = 2.0
SEARCH_ROWS = 20_000
CONTEXT_CHARS = 60
"""Characters shown on either side of a find."""
_MOST_FACETS = 200
_SEARCHED = ("messages", "task", "error", "logs", "unscored", "tool_events", "discarded")


def steps(db: Session, run_id: str, **filters: Any) -> list[dict[str, Any]]:
    """Every step that has matching rollouts, newest first."""
    query = (
        select(
            RolloutRow.step,
            func.count().label("rollouts"),
            func.count(RolloutRow.example_id.distinct()).label("groups"),
            func.avg(RolloutRow.reward).label("mean_reward"),
            func.min(RolloutRow.reward).label("lowest"),
            func.max(RolloutRow.reward).label("highest"),
            func.sum(case((RolloutRow.ok.is_(True), 0), else_=1)).label("failed"),
            func.count(RolloutRow.discarded).label("discarded"),
            func.max(RolloutRow.tokens).label("most_tokens"),
        )
        .where(matching(run_id, **filters))
        .group_by(RolloutRow.step)
        .order_by(RolloutRow.step.desc())
    )
    return [dict(row._mapping) for row in db.execute(query)]


def facets(db: Session, run_id: str, split: str, eval_id: str = "") -> tuple[list[str], list[str]]:
    """The tools that were called and the ways rollouts ended, in this split."""
    scope = matching(run_id, split=split, eval_id=eval_id)
    called = db.scalars(select(cast(RolloutRow.tools, Text)).where(scope).distinct().limit(_MOST_FACETS))
    tools = {name for names in called for name in json.loads(names)}
    ended = db.scalars(select(RolloutRow.termination).where(scope).distinct().limit(_MOST_FACETS))
    return sorted(tools)[:_MOST_FACETS], sorted(ended)


@dataclass(slots=True)
class Found:
    """Rollouts that hold a text, each with the text around it; `searched` of `total` were read."""

    rows: list[tuple[RolloutRow, str]] = field(default_factory=list)
    searched: int = 0
    total: int = 0


def search(
    db: Session, run_dir: Path, run_id: str, text: str, *, order: str = "newest", limit: int = 200, **filters: Any
) -> Found:
    """Rollouts whose record holds `text`, letter case aside."""
    scope = matching(run_id, **filters)
    found = Found(total=db.scalar(select(func.count()).select_from(RolloutRow).where(scope)) or 0)
    by = ordered(order, filters.get("component"))
    rows = db.scalars(select(RolloutRow).where(scope).order_by(*by).limit(SEARCH_ROWS)).all()
    until = time.monotonic() + SEARCH_SECONDS
    wanted = json.dumps(text, ensure_ascii=False)[1:-1].lower()
    for row, line in _lines(run_dir, rows):
        found.searched += 1
        if wanted in line.lower() and (excerpt := _excerpt(line, text.lower())) is not None:
            found.rows.append((row, excerpt))
        if len(found.rows) >= limit or time.monotonic() > until:
            break
    return found


def _lines(run_dir: Path, rows: Sequence[RolloutRow]) -> Iterator[tuple[RolloutRow, str]]:
    """Each row with its record's line; with what the index has when the file is gone."""
    for name, of_file in groupby(rows, key=lambda row: row.file):
        try:
            file = open_plain(run_dir, name)
        except OSError:
            yield from ((row, row.prompt_text) for row in of_file)
            continue
        with file:
            for row in of_file:
                file.seek(row.offset)
                yield row, file.read(row.length).decode("utf-8", "replace")


def _excerpt(line: str, wanted: str) -> str | None:
    """The text around `wanted` in a record's texts; None when it is only among the names of its fields."""
    record = object_in(line)
    if record is None:  # the prompt alone
        record = {"messages": line}
    for name in _SEARCHED:
        for text in _texts(record.get(name)):
            at = text.lower().find(wanted)
            if at >= 0:
                start, end = max(0, at - CONTEXT_CHARS), at + len(wanted) + CONTEXT_CHARS
                return clean(f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}")
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
