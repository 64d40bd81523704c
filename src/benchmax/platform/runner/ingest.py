"""Reads a run directory into the database as it grows: every record once.

How far a file was read is stored in the transaction that stores what was read, with a fingerprint of the file and the
bytes just before that point. If that changed, the trainer went back to a checkpoint and moved records aside, or the
data directory was restored from a backup: the file is read again and rows that it no longer holds are dropped. A torn
last line waits until it is whole. Reader and writer never wait for each other.
"""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from benchmax import metrics
from benchmax.errors import NotFoundError
from benchmax.files import json_size
from benchmax.files.links import open_plain
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.platform.runner.children.child_files import read_child_file
from benchmax.platform.runner.event_texts import CATEGORIES, event_text
from benchmax.platform.store.accounts import webhooks
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.clean_text import clean_json, finite, fits_integer
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import evals, events, ingested, rollouts, runs
from benchmax.platform.store.runs import metrics as run_metrics
from benchmax.platform.wire.values import ENDED
from benchmax.rollouts.record import DEMONSTRATION

logger = logging.getLogger(__name__)

BATCH_BYTES = 8 * 1024 * 1024
"""Read in one transaction."""
LINE_BYTES = 32 * 1024 * 1024
"""A longer line is left out: benchmax writes none."""
STEP_SECONDS = 0.5
"""Time for one `step`, after which other runs have their turn."""
FINGERPRINT_BYTES = 1024
"""Bytes before a cursor, by which the file is recognised as the one that was read."""

METRICS, EVENTS, STATUS = "metrics.jsonl", "events.jsonl", "status.json"
SPLITS = ("train", "eval")
DEMONSTRATIONS = "rollouts/warm_start-"
"""Solutions that the model was shown. In older runs they bear the split of an evaluation, which they are not."""


class Line(NamedTuple):
    """A line of a file, and where it is."""

    offset: int
    length: int
    value: dict[str, Any]


class Piece(NamedTuple):
    """New lines of one file."""

    name: str
    known: int
    """Where reading stopped the last time."""
    start: int
    """Where it began now: at `known`, or at 0 when the file is not the one it was."""
    end: int
    fingerprint: int
    rewound: bool
    lines: list[Line]


class _CursorMoved(Exception):
    """Another process read a file of this run; start again from what is stored."""


class Ingest:
    """Reads one run directory. One supervisor at a time does; a second one would find the cursor moved."""

    def __init__(self, database: Database, run_id: str, run_dir: Path, secrets: Iterable[str] = ()) -> None:
        self.database = database
        self.run_id = run_id
        self.run_dir = run_dir
        self.total: int | None = None
        self._hide = Redactor(secrets)
        self._offsets: dict[str, tuple[int, int]] = {}
        """Offset and fingerprint of every file, as stored."""
        self._is_behind = True
        """Whether the offsets must be read first."""
        self._seen: dict[str, tuple[int, int, int]] = {}
        """Inode, size and time of a file when it had been read to its end."""

    def step(self, seconds: float = STEP_SECONDS) -> bool:
        """Read new records for about so many seconds; returns whether all were read."""
        until = time.monotonic() + seconds
        if self._is_behind:
            with self.database.read() as db:
                self._offsets = ingested.offsets(db, self.run_id)
            self._is_behind = False
        self._drop_missing()
        self._read_status()
        try:
            for batch in self._batches():
                self._store(batch)
                if time.monotonic() > until:
                    return False
        except _CursorMoved:
            self._is_behind = True
            self._seen.clear()
            return False
        return True

    # Files

    def _files(self) -> Iterator[str]:
        yield METRICS
        yield EVENTS
        yield from sorted(self._rollout_files(), key=_step_of)

    def _rollout_files(self) -> list[str]:
        try:
            return [f"rollouts/{path.name}" for path in (self.run_dir / "rollouts").glob("[!.]*.jsonl")]
        except OSError:
            return []

    def _stat(self, name: str) -> tuple[int, int, int] | None:
        try:
            found = (self.run_dir / name).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _drop_missing(self) -> None:
        """Rollout files that were moved aside take their rows with them."""
        there = set(self._rollout_files())
        gone = [name for name in self._offsets if name.startswith("rollouts/") and name not in there]
        if not gone:
            return
        with self.database.write() as db:
            for name in gone:
                rollouts.drop_file(db, self.run_id, name)
                ingested.forget_file(db, self.run_id, name)
            ingested.count_errors(db, self.run_id)
        for name in gone:
            del self._offsets[name]
            self._seen.pop(name, None)

    def _batches(self) -> Iterator[list[Piece]]:
        """New lines, in batches of one transaction each. A batch is stored before the next is read."""
        batch: list[Piece] = []
        for name in self._files():
            while (piece := self._read(name)) is not None:
                batch.append(piece)
                full = piece.end - piece.start >= BATCH_BYTES
                if full or sum(each.end - each.start for each in batch) >= BATCH_BYTES:
                    yield batch
                    batch = []
                if not full:
                    break
        if batch:
            yield batch

    def _read(self, name: str) -> Piece | None:
        """The new lines of a file, as many as fit into a batch; None without any."""
        look = self._stat(name)
        if look is None or look == self._seen.get(name):
            return None
        offset, fingerprint = self._offsets.get(name, (0, 0))
        try:
            file = open_plain(self.run_dir, name)
        except OSError:  # moved aside just now, or a link
            return None
        with file:
            rewound = offset > 0 and _fingerprint(file, offset) != fingerprint
            start = 0 if rewound else offset
            # What was moved aside and what came instead change in one transaction.
            lines, end = _lines(file, start, None if rewound and name == METRICS else BATCH_BYTES, self._hide)
            moved = _fingerprint(file, end)
        if end == offset and not rewound:
            self._seen[name] = look
            return None
        return Piece(name, offset, start, end, moved, rewound, lines)

    # Rows

    def _store(self, batch: list[Piece]) -> None:
        """Rows and cursors, in one transaction."""
        with self.database.write() as db:
            stored = ingested.locked_offsets(db, self.run_id, [piece.name for piece in batch])
            if any(stored.get(piece.name, 0) != piece.known for piece in batch):
                raise _CursorMoved
            new_events = [event for piece in batch if piece.name == EVENTS for event in _events(piece.lines)]
            if any(piece.rewound for piece in batch if piece.name == EVENTS):
                ingested.forget_events(db, self.run_id)
            for piece in batch:
                if piece.name == METRICS:
                    new_events = self._store_earlier(db, new_events, piece.lines)
                    self._store_metrics(db, piece.lines, piece.rewound)
            for event in new_events:
                self._store_event(db, event)
            self._store_rollouts(db, [piece for piece in batch if piece.name not in (METRICS, EVENTS)])
            read = {piece.name: (piece.end, piece.fingerprint) for piece in batch}
            ingested.move_cursors(db, self.run_id, read)
        self._offsets |= read

    def _store_earlier(
        self, db: Session, new_events: list[dict[str, Any]], metrics: list[Line]
    ) -> list[dict[str, Any]]:
        """Store events older than these metrics first, so that a feed has them in order; returns the others."""
        first = _time_of(metrics[0].value) if metrics else 0.0
        earlier = list(takewhile(lambda event: _time_of(event) <= first, new_events))
        for event in earlier:
            self._store_event(db, event)
        return new_events[len(earlier) :]

    def _store_metrics(self, db: Session, lines: list[Line], rewound: bool) -> None:
        metrics = [metric for line in lines if (metric := _metric(line.value)) is not None]
        tops = {split: max((each.step for each in metrics if each.split == split), default=-1) for split in SPLITS}
        if rewound:
            for split in SPLITS:
                run_metrics.drop_from(db, self.run_id, split, tops[split] + 1)
            ingested.forget_step(db, self.run_id)
        run_metrics.record(db, self.run_id, metrics)
        if metrics:
            step = tops["train"] if tops["train"] >= 0 else None
            runs.set_progress(db, self.run_id, step=step, activity=self._activity(metrics[-1]))
        data = {split: top for split, top in tops.items() if top >= 0}
        events.append(db, self.run_id, "points", category="feed", data=data)

    def _activity(self, line: run_metrics.MetricLine) -> str:
        reward = line.values.get(metrics.REWARD)
        detail = "" if reward is None else f": mean reward {reward:.3f}"
        if line.split == "eval":
            return f"evaluated after step {line.step}{detail}" if line.step else f"evaluated before training{detail}"
        return f"step {line.step + 1}{f' of {self.total}' if self.total else ''}{detail}"

    def _store_rollouts(self, db: Session, pieces: list[Piece]) -> None:
        rows = self._index(db, pieces)
        if any(piece.rewound for piece in pieces):
            ingested.count_errors(db, self.run_id)
        elif failed := sum(row["error_type"] is not None for row in rows):
            runs.add_errors(db, self.run_id, failed)
        if rows:
            data = {"mode": rows[-1]["split"], "step": rows[-1]["step"], "count": len(rows)}
            events.append(db, self.run_id, "rollouts", category="feed", data=data)

    def _index(self, db: Session, pieces: list[Piece], **more: str) -> list[dict[str, Any]]:
        """Store index rows and log rows, in place of those of a file that is read again.

        An invalid record is left out alone.
        """
        rows: list[dict[str, Any]] = []
        logs: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.rewound:
                rollouts.drop_file(db, self.run_id, piece.name)
            split = {"split": DEMONSTRATION} if piece.name.startswith(DEMONSTRATIONS) else more
            for line in piece.lines:
                try:
                    row = rollouts.row_of(line.value, file=piece.name, offset=line.offset, length=line.length, **split)
                    logs += rollouts.logs_of(line.value)
                    rows.append(row)
                except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                    logger.warning("the record at byte %d of %s is left out: %r", line.offset, piece.name, error)
        rollouts.index(db, self.run_id, rows)
        rollouts.add_logs(db, self.run_id, logs)
        return rows

    def _store_event(self, db: Session, line: Mapping[str, Any]) -> None:
        kind = str(line.get("kind", "event"))
        data = {name: value for name, value in line.items() if name not in ("time", "kind", "message")}
        category = CATEGORIES.get(kind, "diagnostic")
        text = str(line.get("message") or event_text(kind, data))
        name = f"{ingested.TRAINER}{kind}"[:80]
        event = events.append(db, self.run_id, name, text, category=category, data=data, at=_time_of(line))
        if category == "alert":
            webhooks.queue_alert(db, self.run_id, event.message, event.data, event.time)

    def _read_status(self) -> None:
        """The number of steps planned; the rest of status.json is for the supervisor."""
        if self.total is None and (status := read_child_file(self.run_dir / STATUS)):
            total = status.get("steps")
            if fits_integer(total):
                with self.database.write() as db:
                    runs.set_progress(db, self.run_id, total=total)
                self.total = total


class EvalIngest(Ingest):
    """Reads the rollouts of an evaluation outside training, which lie in a folder of their own."""

    def __init__(
        self, database: Database, run_id: str, run_dir: Path, secrets: Iterable[str] = (), *, eval_id: str
    ) -> None:
        super().__init__(database, run_id, run_dir, secrets)
        self.eval_id = eval_id

    def _files(self) -> Iterator[str]:
        yield f"{ingested.EVALS}{self.eval_id}/rollouts.jsonl"

    def _drop_missing(self) -> None:
        """Records of an evaluation are never moved aside."""

    def _read_status(self) -> None:
        """It has no status.json."""

    def _store_rollouts(self, db: Session, pieces: list[Piece]) -> None:
        self._index(db, pieces, split=evals.SPLIT, eval_id=self.eval_id)
        done = ingested.count_eval(db, self.run_id, self.eval_id)
        evals.set_progress(db, self.eval_id, done=done)


def reindex(database: Database, data: DataDir, run_id: str) -> None:
    """Rebuild a run's rows from its directory."""
    run_dir = data.run(run_id)
    vault = Vault(data)
    with database.write() as db:
        run = runs.get(db, run_id)
        if run is None:
            raise NotFoundError(f"There is no run {run_id}. `benchmax runs list` shows them.")
        ended, activity = run.status in ENDED, run.activity
        secrets = vault.for_run(db, run.owner_id, run_id).values()
        ingested.clear(db, run_id)
    ingest = Ingest(database, run_id, run_dir, secrets)
    while not ingest.step():
        pass
    if ended:
        with database.write() as db:
            runs.set_progress(db, run_id, activity=activity)


def _time_of(line: Mapping[str, Any]) -> float:
    return finite(line.get("time")) or 0.0


def _events(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield clean_json(line.value)
        except RecursionError:
            logger.warning("the event at byte %d is left out: it is nested too deeply", line.offset)


def _lines(file: Any, start: int, most: int | None, hide: Redactor) -> tuple[list[Line], int]:
    """The complete lines from `start`, about `most` bytes of them, and where they end."""
    file.seek(start)
    found: list[Line] = []
    at = start
    while most is None or at - start < most:
        text = file.readline(LINE_BYTES)
        if len(text) == LINE_BYTES and not text.endswith(b"\n"):
            length = _rest_of_line(file)
            if not length:
                break
            logger.warning("a line of more than %d bytes at byte %d of %s is left out", LINE_BYTES, at, file.name)
            at += LINE_BYTES + length
            continue
        if not text.endswith(b"\n"):
            break
        try:
            value = None if json_size.too_many(text) else json.loads(text.decode("utf-8", "replace"))
            if isinstance(value, dict):
                found.append(Line(at, len(text), hide_texts(value, hide) if hide else value))
        except (ValueError, RecursionError):
            logger.warning("a damaged line at byte %d of %s is left out", at, file.name)
        at += len(text)
    return found, at


def _rest_of_line(file: Any) -> int:
    """Skip to the end of a line; returns the bytes skipped, 0 when the line has no end yet."""
    length = 0
    while piece := file.readline(LINE_BYTES):
        length += len(piece)
        if piece.endswith(b"\n"):
            return length
    return 0


def _fingerprint(file: Any, offset: int) -> int:
    """Changes when the file is replaced, or what was read of it: inodes are used again, so both are in it."""
    begin = max(0, offset - FINGERPRINT_BYTES)
    file.seek(begin)
    inode = os.fstat(file.fileno()).st_ino & 0x7FFF_FFFF
    return inode << 32 | zlib.crc32(file.read(offset - begin))


def _step_of(name: str) -> tuple[int, str]:
    """`rollouts/train-12.jsonl` by its step."""
    _, _, number = name.removesuffix(".jsonl").rpartition("-")
    return int(number) if number.isdecimal() else -1, name


def _metric(line: Mapping[str, Any]) -> run_metrics.MetricLine | None:
    if not fits_integer(line.get("step")) or not isinstance(line.get("values"), dict) or "split" not in line:
        return None
    values = {name: number for name, value in line["values"].items() if (number := finite(value)) is not None}
    return run_metrics.MetricLine(line["step"], str(line["split"]), _time_of(line), values)
