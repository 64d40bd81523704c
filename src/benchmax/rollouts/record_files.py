"""Rollouts in files (`benchmax.files.jsonl`), and finding those of an evaluation or of a step of a training run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.files.jsonl import JsonlWriter, read_jsonl
from benchmax.rollouts.record import Rollout


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
    advice = "Give the folder of an evaluation or a training run, or a file in it."
    if path.suffix != ".jsonl":
        raise RecordError(f"{path} is no file of rollouts. {advice}")
    for number, record in enumerate(read_jsonl(path), start=1):
        try:
            rollout = Rollout.from_dict(record)
        except RecordError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RecordError(f"{path}:{number} is not a rollout. {advice}") from None
        yield rollout


def find_rollouts(path: str | Path, step: int | None = None) -> list[Rollout]:
    """The newest record of each rollout of an evaluation, or of one step of a training run (by default the last)."""
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
    """The newest record of each (example, sample): a rollout that was played again replaces the earlier one."""
    return {rollout.key: rollout for rollout in read_rollouts(path)}
