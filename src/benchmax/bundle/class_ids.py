"""The same environment packs into the same bytes, in every process.

cloudpickle gives each class that it includes by value a random id, so that a process that opens the pickle twice gets
one class. Such a pickle differs each time it is made: uploads would pile up, and two runs of one environment could not
be recognised as such. Here the ids are derived from the rest of the pickle; classes that differ keep different ids.
"""

from __future__ import annotations

import hashlib
from typing import Any

ID_CHARS = 32


def stable_bytes(pickled: bytes) -> bytes:
    """The pickle with ids that depend on its content alone."""
    classes = _classes_in(pickled)
    blank = _renamed(pickled, {old: f"{place:0{ID_CHARS}d}" for place, old in enumerate(classes)})
    digest = hashlib.sha256(blank).hexdigest()
    fresh = {old: _id(digest, place) for place, old in enumerate(classes)}
    _tracked().update({fresh[old]: found for old, found in classes.items()})  # opened here, it is the same class
    return _renamed(pickled, fresh)


def _classes_in(pickled: bytes) -> dict[str, type]:
    """The classes that the pickle includes by value, by their ids, in the order in which they occur."""
    found = [(pickled.find(id.encode()), id, each) for id, each in _tracked().items()]
    return {id: each for at, id, each in sorted(found, key=lambda one: one[0]) if at >= 0}


def _tracked() -> Any:
    """cloudpickle's classes by id: a private name of it, so a version without it packs as it does by itself."""
    from cloudpickle import cloudpickle  # type: ignore[import-untyped]

    return getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})


def _id(digest: str, place: int) -> str:
    return hashlib.sha256(f"{digest} {place}".encode()).hexdigest()[:ID_CHARS]


def _renamed(pickled: bytes, names: dict[str, str]) -> bytes:
    """Names of equal length change places: no offset in the pickle moves."""
    for old, new in names.items():
        pickled = pickled.replace(old.encode(), new.encode())
    return pickled
