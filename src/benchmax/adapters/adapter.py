"""How an adapter describes itself. Its entry in the group `benchmax.trainers` names such an object.

    [project.entry-points."benchmax.trainers"]
    trl = "benchmax.adapters.trl:ADAPTER"

Loading it imports nothing of the trainer, so `benchmax doctor --trainers` can list every adapter everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmax import plugins
from benchmax.errors import UsageError

if TYPE_CHECKING:
    from benchmax.trainer.backend import Backend


@dataclass(frozen=True, slots=True)
class TrainerAdapter:
    """Our environments in one outside trainer."""

    name: str
    title: str
    """The trainer's name as its authors write it."""
    works: tuple[str, ...]
    """Requirements that all have to hold, the trainer's own first: those that the tests of the adapter cover."""
    pin: str
    """What to install, as pip takes it."""
    offers: str
    """What a user of the trainer gets, in a few words."""
    python: str = ">=3.11"
    backend: str | None = None
    """`module:name` of a `benchmax.trainer.backend.Backend`, when `benchmax train --backend NAME` can use it."""
    secrets: tuple[str, ...] = ()
    """Secrets of a run on the platform that its backend needs, and the environment does not get."""
    check_launch: str | None = None
    """`module:name` of a function that takes the names of a launch's secrets, and raises UsageError if it could not
    begin here."""

    @property
    def page(self) -> str:
        return f"docs/trainers/{self.name}.md"

    def open_backend(self) -> Backend:
        """The backend for `benchmax train`; a trainer that runs its own loop has none."""
        if self.backend is None:
            raise UsageError(
                f"{self.title} runs its own training loop, so `benchmax train` cannot start it. See {self.page}."
            )
        made: Backend = _named(self.backend)()
        return made

    def refuse_launch(self, secrets: Collection[str]) -> None:
        """Raise UsageError, in one line, for a launch with these secrets that could not begin on this machine."""
        if self.check_launch:
            _named(self.check_launch)(secrets)


def _named(address: str) -> Any:
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def adapters() -> Iterator[TrainerAdapter]:
    """Every adapter that is installed, ours and those of other packages."""
    found: list[tuple[str, Any]] = sorted(plugins.load_all("trainers"), key=lambda entry: entry[0])
    return (each for _, each in found if isinstance(each, TrainerAdapter))
