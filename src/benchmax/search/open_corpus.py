"""Opening a corpus by what a person writes.

an index's file      as `benchmax wikipedia index` builds it
a folder             indexed when it is opened, and again when its files have changed
platform:CORPUS      a corpus of the platform, by its name or id
NAME:address         what an installed package adds as `NAME` (entry point group `benchmax.corpora`)
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path

from benchmax import config, plugins
from benchmax.errors import NotFoundError
from benchmax.search.build import build_index
from benchmax.search.index import Index, open_index
from benchmax.search.platform_corpus import PlatformCorpus
from benchmax.search.types import SearchClient

PLATFORM = "platform"
plugins.reserve("corpora", {PLATFORM})
PASSAGE_CHARS = 1_200
"""Of a file in a folder that has no index of its own."""
_WAIT_SECONDS = 600.0
"""For another process that indexes the same folder."""


def open_corpus(address: str | Path, others: Sequence[str] = ()) -> SearchClient:
    """The corpus at an address; NotFoundError when there is none, with the `others` that the caller has itself."""
    path = Path(address).expanduser()
    if path.is_dir():
        return index_of_folder(path)
    if path.is_file():
        return open_index(path)
    name, colon, rest = str(address).partition(":")
    if colon and name == PLATFORM:
        return PlatformCorpus(rest)
    if colon and name in plugins.entries("corpora"):
        found = plugins.call("corpora", name, rest)
        if inspect.isclass(found) or not isinstance(found, SearchClient):
            wanted = "an object with search, embed, available_modes and get_params, such as a MemoryIndex of Documents"
            raise plugins.wrong("corpora", name, found, wanted)
        return found
    known = ", ".join([*others, *(f"{each}:NAME" for each in (PLATFORM, *plugins.entries("corpora")))])
    raise NotFoundError(f"There is no corpus {str(address)!r}. Give an index's file, a folder, or one of: {known}.")


def index_of_folder(folder: Path) -> Index:
    """The index of a folder's texts, in passages, kept in the cache of this machine and up to date."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    path = corpora_dir() / f"folder-{name}.sqlite"
    return build_index(folder, path, passage_chars=PASSAGE_CHARS, wait=_WAIT_SECONDS)


def corpora_dir() -> Path:
    """Where indexes are kept that no place was given for."""
    return config.home() / "corpora"


def public_dir() -> Path:
    """Where corpora are kept that all may read, environments in a sandbox too: `BENCHMAX_CORPORA`, if it is set."""
    return Path(os.environ.get("BENCHMAX_CORPORA") or corpora_dir() / "public")
