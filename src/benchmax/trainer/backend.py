"""The port of training backends: this room is the default, installed packages add others (`benchmax.plugins`).

An entry is a `Backend`, or an adapter of `benchmax.adapters`, which opens its own, if it has one.

A backend takes the same settings, writes the same run directory and reports the same events as the embedded trainer, so
that commands, platform and console show its runs like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmax import plugins
from benchmax.errors import BenchmaxError, NotFoundError, describe_cause
from benchmax.memory import out_of_memory
from benchmax.trainer.progress import Outcome

if TYPE_CHECKING:
    from benchmax.trainer.config import TrainConfig
    from benchmax.trainer.task import Task

EMBEDDED = "embedded"
plugins.reserve("trainers", {EMBEDDED})
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
    return backend if type(backend).__module__.startswith("benchmax.") else AddedBackend(name, backend)


class AddedBackend:
    """A backend of another package: whatever goes wrong in it is a PluginError that names the package."""

    def __init__(self, name: str, backend: Backend) -> None:
        self.name, self.backend = name, backend

    async def train(self, config: TrainConfig, **options: Any) -> Outcome:
        """Start a new run."""
        return await self._outcome("train", config, options)

    async def resume(self, path: Path, **options: Any) -> Outcome:
        """Resume a run."""
        return await self._outcome("resume", path, options)

    async def _outcome(self, method: str, subject: Any, options: Mapping[str, Any]) -> Outcome:
        try:
            outcome = getattr(self.backend, method)(subject, **options)
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except (Exception, SystemExit) as error:
            if isinstance(error, BenchmaxError | OSError) or out_of_memory(error):
                raise
            raise plugins.broken("trainers", self.name, f"failed in {method}: {describe_cause(error)}") from error
        match outcome:
            case Outcome(path=Path() as path, reason=str(), step=int()) if (path / "run.json").is_file():
                return outcome
        raise plugins.wrong("trainers", self.name, outcome, f"an Outcome from {method} whose path holds a run")
