"""Progress on stderr: a live bar on a terminal, a line now and then in a pipe."""

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


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[Rollout], None]]:
    """A function to call with each finished rollout."""
    done = scored = failed = 0
    earned = 0.0
    with live_bar(title) as update:

        def add(rollout: Rollout) -> None:
            nonlocal done, scored, failed, earned
            done += 1
            failed += not rollout.ok
            if rollout.reward is not None:
                scored += 1
                earned += rollout.reward
            mean = f"{earned / scored:.3f}" if scored else "–"
            update(done, total, f"{done}/{total} reward {mean}" + (f", {failed} failed" if failed else ""))

        yield add


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

    def print_line(done: float, total: float, words: str) -> None:
        nonlocal last
        if done == total or monotonic() - last > _SECONDS:
            last = monotonic()
            stderr.print(f"{title}: {words}", markup=False)

    return print_line


@contextmanager
def fetching(name: str) -> Iterator[Say]:
    """A function to call with what a download does: a live line on a terminal, one plain line anywhere else."""
    if stderr.is_terminal:
        with stderr.status(safe(name)) as status:
            yield lambda what: status.update(safe(what))
        return
    printed = False

    def print_first(what: str) -> None:
        nonlocal printed
        if not printed:
            stderr.print(f"{name}: {what}", markup=False)
        printed = True

    yield print_first
