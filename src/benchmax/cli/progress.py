"""Progress of rollouts: a live bar on a terminal, a line now and then in a pipe, nothing under --json's stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmax.cli.output import stderr
from benchmax.rollouts.record import Rollout


class _Tally:
    """Running means, for the bar's text."""

    def __init__(self) -> None:
        self.done = self.scored = self.failed = 0
        self.reward = 0.0

    def add(self, rollout: Rollout) -> None:
        self.done += 1
        self.failed += not rollout.ok
        if rollout.reward is not None:
            self.scored += 1
            self.reward += rollout.reward

    def __str__(self) -> str:
        mean = f"{self.reward / self.scored:.3f}" if self.scored else "–"
        return f"reward {mean}" + (f", {self.failed} failed" if self.failed else "")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[Rollout], None]]:
    """A function to call with each finished rollout."""
    tally = _Tally()
    if not stderr.is_terminal:
        yield _lines(title, total, tally)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tally]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(title, total=total, tally="")

        def told(rollout: Rollout) -> None:
            tally.add(rollout)
            bar.update(task, advance=1, tally=str(tally))

        yield told


def _lines(title: str, total: int, tally: _Tally) -> Callable[[Rollout], None]:
    last = monotonic()

    def told(rollout: Rollout) -> None:
        nonlocal last
        tally.add(rollout)
        if tally.done == total or monotonic() - last > 5.0:
            last = monotonic()
            stderr.print(f"{title}: {tally.done}/{total} {tally}", markup=False)

    return told
