"""The port of training backends: this room is the default, installed packages add others (`benchmax.plugins`).

An entry is a `Backend`, or an adapter of `benchmax.adapters`, which opens its own, if it has one.

A backend takes the same settings, writes the same run directory and reports the same events as the embedded trainer, so
that commands, platform and console show its runs like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmax import plugins
from benchmax.errors import NotFoundError

if TYPE_CHECKING:
    from benchmax.trainer.config import TrainConfig
    from benchmax.trainer.progress import Outcome
    from benchmax.trainer.task import Task

EMBEDDED = "embedded"
OnEvent = Callable[[str, dict[str, Any]], None]
"""Called with the kind and the data of everything that happens. For live views."""


class Backend(Protocol):
    """Trains runs and resumes them."""

    async def train(
        self, config: TrainConfig, *, task: Task | None = None, on_event: OnEvent, grace: float | None = None
    ) -> Outcome:
        """Start a new run in `output.dir` and train to its end; a stopped step has `grace` seconds left."""

    async def resume(
        self,
        path: Path,
        *,
        checkpoint: str = "latest",
        task: Task | None = None,
        changes: Mapping[str, Any] | None = None,
        on_event: OnEvent,
        grace: float | None = None,
    ) -> Outcome:
        """Resume a run from a checkpoint."""


def backends() -> list[str]:
    """Names that `--backend` takes, the embedded trainer's first."""
    found = [name for name, each in plugins.load_all("trainers") if getattr(each, "backend", each)]
    return [EMBEDDED, *sorted(found)]


def open_backend(name: str) -> Backend:
    """The backend that an installed package adds under this name."""
    if name not in plugins.entries("trainers"):
        raise NotFoundError(
            f"There is no training backend {name!r}. There are: {', '.join(backends())}. "
            "Install the package that adds it, or leave --backend out."
        )
    found = plugins.load("trainers", name)
    backend: Backend = found.open_backend() if hasattr(found, "open_backend") else found
    return backend
