"""The records of an invented company, and a short text about each. Nothing in it can be known, only found.

A text says what its record is, then its values:

    Ada Kern, designer. Office: Velmont. Extension: 4821. Joined: 2011.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from random import Random
from typing import TypeAlias

from benchmax.search.memory_index import MemoryIndex
from benchmax.search.types import Document

SEED = "benchmax handbook 1"
PEOPLE, PROJECTS, OFFICES, ROOMS = 160, 80, 32, 120
_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
_Made: TypeAlias = tuple[str, str, str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Record:
    """A person, a project, an office or a room that the handbook describes."""

    id: str
    kind: str
    name: str
    about: str
    values: Mapping[str, str]

    @property
    def text(self) -> str:
        return f"{self.name}, {self.about}. " + " ".join(f"{label}: {value}." for label, value in self.values.items())


@lru_cache(maxsize=1)
def company() -> dict[str, Record]:
    """Every record by its name; always the same."""
    rng = Random(SEED)
    people = rng.sample(_joined("first", "last"), PEOPLE)
    offices = rng.sample(_joined("start", "end", between=""), OFFICES)
    projects = rng.sample([f"Project {name}" for name in _joined("colours", "birds")], PROJECTS)
    rooms = rng.sample([f"Room {name}" for name in _joined("colours", "trees")], ROOMS)
    managers = rng.sample(people, OFFICES)
    made = [_person(rng, name, offices) for name in people]
    made += [_office(rng, name, manager) for name, manager in zip(offices, managers, strict=True)]
    made += [_project(rng, name, people, offices) for name in projects]
    made += [_room(rng, name, offices, people) for name in rooms]
    rng.shuffle(made)
    return {each[1]: Record(f"d{number}", *each) for number, each in enumerate(made, 1)}


@lru_cache(maxsize=1)
def handbook_index() -> MemoryIndex:
    """The index of the texts."""
    return MemoryIndex(Document(each.id, each.name, each.text) for each in company().values())


def _joined(first: str, second: str, between: str = " ") -> list[str]:
    """Every name of a word of one list and one of another."""
    return list(map(between.join, product(_NAMES[first].split(), _NAMES[second].split())))


def _person(rng: Random, name: str, offices: Sequence[str]) -> _Made:
    values = {"Office": rng.choice(offices), "Extension": _digits(rng, 4), "Joined": _year(rng)}
    return "person", name, rng.choice(_NAMES["roles"].split()), values


def _office(rng: Random, name: str, manager: str) -> _Made:
    return "office", name, "office", {"Manager": manager, "Postcode": _digits(rng, 5), "Opened": _year(rng)}


def _project(rng: Random, name: str, people: Sequence[str], offices: Sequence[str]) -> _Made:
    values = {"Lead": rng.choice(people), "Office": rng.choice(offices), "Budget code": f"B{_digits(rng, 3)}"}
    return "project", name, "project", values


def _room(rng: Random, name: str, offices: Sequence[str], people: Sequence[str]) -> _Made:
    values = {"Office": rng.choice(offices), "Keeper": rng.choice(people), "Door code": _digits(rng, 4)}
    return "room", name, "meeting room", values


def _digits(rng: Random, count: int) -> str:
    return str(rng.randrange(10 ** (count - 1), 10**count))


def _year(rng: Random) -> str:
    return str(rng.randrange(1961, 2020))
