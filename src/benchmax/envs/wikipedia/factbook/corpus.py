"""The corpus as it was fetched: the index of its articles, and every country's facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from benchmax.errors import NotFoundError
from benchmax.search.index import Index
from benchmax.search.open_corpus import public_dir

NAME = "factbook"
VERSION = 1
"""Of what is written; another one is fetched again."""
INDEX, FACTS = "articles.sqlite", "facts.json"
_ADVICE = "Fetch it, once: benchmax wikipedia fetch"

Facts: TypeAlias = Mapping[str, Mapping[str, str]]
"""Of one country: a section's facts by their labels."""


@dataclass(frozen=True, eq=False, slots=True)
class World:
    index: Index
    countries: Mapping[str, Facts]


def factbook_dir() -> Path:
    return public_dir() / "factbook-2015"


def open_world() -> World:
    """The corpus; raises NotFoundError, with the command that fetches it, when it is not here."""
    index = open_articles()
    return _opened(index.path.parent, index.path.stat().st_ino)


def open_articles() -> Index:
    """The index of its articles alone."""
    folder = factbook_dir()
    if not (folder / INDEX).is_file():
        raise NotFoundError(f"The World Factbook of 2015 is not on this machine ({folder}). {_ADVICE}")
    return Index(folder / INDEX)


@lru_cache(maxsize=4)
def _opened(folder: Path, fetched: int) -> World:
    """`fetched` changes with every fetch."""
    try:
        content = json.loads((folder / FACTS).read_text("utf-8"))
    except (OSError, ValueError):
        content = {}
    if content.get("version") != VERSION:
        raise NotFoundError(f"The World Factbook in {folder} was written by another version of benchmax. {_ADVICE}")
    return World(Index(folder / INDEX), content["facts"])
