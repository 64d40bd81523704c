"""How far something is: a live bar on a terminal, a line now and then in a pipe, nothing under --json's stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmax.cli.output import safe, stderr
from benchmax.rollouts.record import Rollout

if TYPE_CHECKING:
    from benchmax.inference.weights.download import Say

Update = Callable[[float, float, str], None]
"""Called with how much is done, of how much, and how to say that."""
_SECONDS = 5.0
"""Between two lines in a pipe."""


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
    with live_bar(title) as update:

        def told(rollout: Rollout) -> None:
            tally.add(rollout)
            update(tally.done, total, f"{tally.done}/{total} {tally}")

        yield told


@contextmanager
def live_bar(title: str) -> Iterator[Update]:
    """A bar on a terminal, a line now and then in a pipe."""
    if not stderr.is_terminal:
        yield _lines(title)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(title, total=None, words="")
        yield lambda done, total, words: bar.update(task, completed=done, total=total, words=words)


def _lines(title: str) -> Update:
    last = monotonic()

    def told(done: float, total: float, words: str) -> None:
        nonlocal last
        if done == total or monotonic() - last > _SECONDS:
            last = monotonic()
            stderr.print(f"{title}: {words}", markup=False)

    return told


@contextmanager
def fetching(name: str) -> Iterator[Say]:
    """A function to call with what a download does: a live line on a terminal, one plain line anywhere else."""
    if stderr.is_terminal:
        with stderr.status(safe(name)) as status:
            yield lambda what: status.update(safe(what))
        return
    told: list[str] = []

    def once(what: str) -> None:
        if not told:
            told.append(what)
            stderr.print(f"{name}: {what}", markup=False)

    yield once
