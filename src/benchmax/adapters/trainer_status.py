"""Which trainers work here: `benchmax doctor --trainers`. Only package metadata is read, nothing is imported."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from benchmax.adapters.adapter import TrainerAdapter, adapters

State = Literal["ok", "missing", "failed"]


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """Whether one trainer works on this machine."""

    name: str
    state: State
    """`ok`, `missing` (it is not installed) or `failed` (it is, in a version that does not work)."""
    says: str
    installed: str | None


def trainer_statuses() -> list[TrainerStatus]:
    return [trainer_status(each) for each in adapters()]


def trainer_status(adapter: TrainerAdapter) -> TrainerStatus:
    """What is installed of a trainer, and what to do about it."""
    own = installed_version(Requirement(adapter.works[0]).name)
    problems = list(_problems(adapter))
    advice = f"pip install {quoted(adapter.pin)} in a virtual environment of its own"
    if own is None:
        python = next(_python_problem(adapter), None)
        says = f"not installed. For {adapter.offers}: {advice}"
        return TrainerStatus(adapter.name, "missing", f"{says}; {python}" if python else says, None)
    if problems:
        return TrainerStatus(adapter.name, "failed", f"{'; '.join(problems)}. {advice}", own)
    return TrainerStatus(adapter.name, "ok", f"{own}: {adapter.offers}", own)


def _problems(adapter: TrainerAdapter) -> Iterator[str]:
    yield from _python_problem(adapter)
    for text in adapter.works:
        wanted = Requirement(text)
        found = installed_version(wanted.name)
        if found is None:
            yield f"{wanted.name} is not installed; tested with {wanted}"
        elif not wanted.specifier.contains(found, prereleases=True):
            yield f"{wanted.name} is {found}; tested with {wanted}"


def _python_problem(adapter: TrainerAdapter) -> Iterator[str]:
    here = platform.python_version()
    if not SpecifierSet(adapter.python).contains(here, prereleases=True):
        yield f"it needs Python {adapter.python}, this is {here}"


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def quoted(requirement: str) -> str:
    return " ".join(f"'{part}'" for part in requirement.split())
