"""What a run's processes wrote, a page at a time. A file is read where it is; a cursor is the byte to go on from.

`environment` is what the environment logged while it played, from the database. `trainer` is the trainer's own log.
`child` is everything the run's process printed, also before training and when it died; lines that the environment
printed carry its name. A line that has no time of its own, as what libraries and older versions print, gets the nearest
earlier one that is known.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmax.files.links import open_plain
from benchmax.platform.store.tables import EnvLog
from benchmax.platform.wire.runs import LogPage, LogRow

Process: TypeAlias = Literal["trainer", "environment", "child"]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FILES = {"trainer": "logs/train.log", "child": "child.log"}
SCANNED_BYTES = 4 * 1024 * 1024
"""Read for one page, whatever the filter lets through."""
LINE_CHARS = 20_000
LOOK_BACK_BYTES = 64 * 1024
"""Before a page, for the time of its first lines."""

_STAMP = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})"
_LOGGED = re.compile(rf"{_STAMP} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)", re.DOTALL)
_PRINTED = re.compile(rf"(?:{_STAMP} )?env (?:stdout|stderr): (.*)", re.DOTALL)
_STAMPED = re.compile(rf"^(?:env (?:stdout|stderr): )?{_STAMP} ", re.MULTILINE)
_FAILURE = re.compile(r"Traceback \(most recent call last\)|^[\w.]*(Error|Exception)\b")


class Wanted(NamedTuple):
    """Which lines."""

    level: str | None
    after: int
    limit: int
    tail: bool

    def includes(self, level: str) -> bool:
        if self.level is None or level not in LEVELS:
            return self.level is None
        return LEVELS.index(level) >= LEVELS.index(self.level)


def of_environment(db: Session, run_id: str, wanted: Wanted) -> LogPage:
    """Lines of the database, oldest first."""
    query = select(EnvLog).where(EnvLog.run_id == run_id, EnvLog.id > wanted.after)
    if wanted.level is not None:
        query = query.where(func.upper(EnvLog.level).in_(LEVELS[LEVELS.index(wanted.level) :]))
    order = EnvLog.id.desc() if wanted.tail else EnvLog.id
    found = sorted(db.scalars(query.order_by(order).limit(wanted.limit)), key=lambda row: row.id)
    lines = [
        LogRow(
            id=row.id,
            created_at=row.time,
            level=row.level,
            process="environment",
            message=f"{row.message}\n{row.traceback}" if row.traceback else row.message,
        )
        for row in found
    ]
    more = len(found) == wanted.limit and not wanted.tail
    return LogPage(lines=lines, next_cursor=str(lines[-1].id if lines else wanted.after), more=more)


def of_file(run_dir: Path, process: Literal["trainer", "child"], wanted: Wanted, began: float | None = None) -> LogPage:
    """Lines of a log file; one that is not there has none. `began` is the time of lines before the first known one."""
    try:
        with open_plain(run_dir, FILES[process]) as file:
            size = file.seek(0, 2)
            start = wanted.after if wanted.after <= size else 0  # a log that was put aside began anew
            if wanted.tail and size - SCANNED_BYTES > start:
                file.seek(size - SCANNED_BYTES)
                file.readline()
                start = file.tell()
            before = _time_before(file, start) or began
            file.seek(start)
            data = file.read(SCANNED_BYTES)
    except OSError:
        return LogPage(lines=[], next_cursor="0", more=False)
    lines, end = _lines(data, start, process, wanted, before)
    return LogPage(lines=lines, next_cursor=str(end), more=b"\n" in data[end - start :] or start + len(data) < size)


def _time_before(file: BinaryIO, start: int) -> float | None:
    """The last time that was written shortly before a byte."""
    file.seek(max(0, start - LOOK_BACK_BYTES))
    text = file.read(min(start, LOOK_BACK_BYTES)).decode("utf-8", "replace")
    known = (_time(*stamp) for stamp in reversed(_STAMPED.findall(text)))
    return next((time for time in known if time is not None), None)


def _lines(data: bytes, start: int, process: str, wanted: Wanted, before: float | None) -> tuple[list[LogRow], int]:
    """Whole lines that are wanted, and where they end. A line without a level or a time has that of the line before."""
    found: list[LogRow] = []
    at, level = start, "INFO"
    raws = data.split(b"\n")
    if len(raws) > 1 or len(data) < SCANNED_BYTES:
        raws.pop()  # not whole yet; a line longer than a page is cut instead
    for raw in raws:
        if len(found) == wanted.limit and not wanted.tail:
            break
        row = _row(at, raw.decode("utf-8", "replace").strip("\r")[:LINE_CHARS], process, level)
        if row.created_at is None:
            row.created_at, row.approximate = before, before is not None
        level, before = row.level, row.created_at
        at = min(at + len(raw) + 1, start + len(data))
        if row.message and wanted.includes(row.level):
            found.append(row)
    return found[-wanted.limit :], at


def _row(at: int, text: str, process: str, before: str) -> LogRow:
    created: float | None = None
    printed = _PRINTED.fullmatch(text) if process == "child" else None
    if printed is not None:
        process, text = "environment", printed[3]
        created = _time(printed[1], printed[2]) if printed[1] else None
    logged = _LOGGED.fullmatch(text)
    if logged is not None and (own := _time(logged[1], logged[2])) is not None:
        return LogRow(id=at, created_at=created or own, level=logged[3], process=process, message=logged[4])
    follows = before if text.startswith((" ", "\t")) else "INFO"
    level = "ERROR" if _FAILURE.search(text) else follows
    return LogRow(id=at, created_at=created, level=level, process=process, message=text)


def _time(second: str, milliseconds: str) -> float | None:
    """None for an impossible time: an environment prints anything."""
    try:
        return datetime.strptime(second, "%Y-%m-%d %H:%M:%S").timestamp() + int(milliseconds) / 1000
    except (ValueError, OverflowError):
        return None
