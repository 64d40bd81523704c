"""Rollouts on disk: one JSON object a line, append-only, readable after any crash.

A line is written in one go, so a killed process leaves at most one torn line at the end; it is ignored when
reading and cut off when writing goes on. Damage in the middle is reported with its line number.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.rollouts.record import Rollout


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a record file."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RecordError(f"{path}:{number} is damaged: {error}. Remove that line to read the rest.") from None


_redactor = Redactor(())


def keep_secret(values: Iterable[str]) -> None:
    """Values that no line of this process shall hold, in whatever form."""
    global _redactor
    _redactor = Redactor(values)


def line_of(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON, without secrets: in its texts, where a cut is seen and no number is damaged."""
    told = _without_secrets(record) if _redactor else record
    return json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _without_secrets(record: Mapping[str, Any]) -> dict[str, Any]:
    found: list[str] = []

    def hide(text: str) -> str:
        told = _redactor(text)
        if told != text:
            found.append(told)
        return told

    told: dict[str, Any] = hide_texts(record, hide)
    if found:
        told.pop("tokens", None)  # which read as the texts did
    return told


def without_secrets(text: str) -> str:
    """The text with every value of `keep_secret` taken out."""
    return _redactor(text)


class JsonlWriter:
    """Appends JSON lines to a file that nobody else may append to."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UsageError(
                f"{self.path} is being written by another process. Wait for it, or use another folder."
            ) from None
        _cut_torn_tail(self.path)

    def write(self, record: dict[str, Any]) -> None:
        data = line_of(record).encode("utf-8", errors="surrogatepass")
        written = self._file.write(data)
        if written != len(data):  # a full disk: leave no half line behind
            self._file.truncate(self._file.tell() - (written or 0))
            raise OSError(28, "No space left on device", str(self.path))

    def sync(self) -> None:
        """Make sure what was written survives a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut_torn_tail(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            file.truncate(end)


class RolloutLog(JsonlWriter):
    """Rollouts, appended as they finish."""

    def append(self, rollout: Rollout) -> None:
        self.write(rollout.to_dict())


def read_rollouts(path: str | Path) -> Iterator[Rollout]:
    """Every rollout in a record file, in the order they were written."""
    path = Path(path)
    if path.is_dir():
        path = path / "rollouts.jsonl"
    if not path.exists():
        raise NotFoundError(f"There are no rollouts at {path}. Give the folder of an evaluation or a training run.")
    for number, record in enumerate(read_jsonl(path), start=1):
        yield _rollout(record, path, number)


def _rollout(record: Any, path: Path, number: int) -> Rollout:
    try:
        return Rollout.from_dict(record)
    except RecordError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RecordError(
            f"{path}:{number} is no rollout. Give the folder of an evaluation or a training run, or a file of theirs."
        ) from None


def find_rollouts(path: str | Path, step: int | None = None) -> list[Rollout]:
    """The newest record of each rollout of an evaluation, or of one step of a training run (its last if not told)."""
    path = Path(path)
    if (path / "rollouts").is_dir():
        path = path / "rollouts"
    files = _step_files(path) if path.is_dir() and not (path / "rollouts.jsonl").exists() else {}
    if not files:
        if step is not None:
            raise UsageError(f"{path} holds no training run, so it has no steps. Leave --step out.")
        return list(latest_rollouts(path).values())
    wanted = max(files) if step is None else step
    if wanted not in files:
        raise NotFoundError(f"{path} has no rollouts of step {wanted}. It has: {_shortened(sorted(files))}.")
    return [rollout for file in files[wanted] for rollout in latest_rollouts(file).values()]


def _step_files(folder: Path) -> dict[int, list[Path]]:
    """The files train-N.jsonl and eval-N.jsonl by N."""
    files: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("*-*.jsonl")):
        number = path.stem.rpartition("-")[2]
        if number.isdecimal():
            files.setdefault(int(number), []).append(path)
    return files


def _shortened(steps: list[int]) -> str:
    shown = [str(step) for step in steps]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:5], "…", *shown[-5:]])


def latest_rollouts(path: str | Path) -> dict[tuple[str, int], Rollout]:
    """The newest record of each (example, sample): what a rollout that was redone finally became."""
    return {rollout.key: rollout for rollout in read_rollouts(path)}
