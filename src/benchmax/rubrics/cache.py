"""Adaptive rubrics kept in a file: the three of each question whose scores spread most.

`benchmax.rewards.RubricCache` keeps them in memory and is what our own functions use. These functions are for
environments that keep them between processes: the file is replaced as a whole, under a lock.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from benchmax.errors import ConfigError
from benchmax.files import atomic
from benchmax.files.locks import lock_file
from benchmax.rewards.adaptive import best_by_spread
from benchmax.rewards.judge_cache import cache_key
from benchmax.rewards.rubric import Rubric
from benchmax.rubrics.evaluate import question_text

Entries: TypeAlias = dict[str, list[dict[str, Any]]]
"""Rubrics with the spread of their scores, by a digest of the question."""


def load_rubric_cache(path: str | os.PathLike[str] | None = None) -> Entries:
    """What the file holds; nothing when it is not there, cannot be read, or is another user's."""
    file = _file(path)
    try:
        if file.stat().st_uid != os.getuid():  # the temporary folder is everybody's
            return {}
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: kept for key, kept in found.items() if isinstance(kept, list)} if isinstance(found, dict) else {}


def save_rubric_cache(
    cache: Mapping[str, Sequence[Mapping[str, Any]]], path: str | os.PathLike[str] | None = None
) -> None:
    """Write the file, whole or not at all."""
    atomic.write_text(_file(path), json.dumps(dict(cache)), private=True, durable=False)


@contextmanager
def atomic_cache_update(path: str | os.PathLike[str] | None = None) -> Iterator[Entries]:
    """The entries, to be changed in the block; they are saved at its end. Processes take turns."""
    file = _file(path)
    with open(lock_file(file.with_name(f".{file.name}.lock"), wait=inf)):
        cache = load_rubric_cache(file)
        yield cache
        save_rubric_cache(cache, file)


def get_cache_for_question(question: Any, path: str | os.PathLike[str] | None = None) -> list[Rubric]:
    """The rubrics kept for a question, the one that distinguishes answers best first."""
    return [rubric for rubric, _ in _kept(load_rubric_cache(path), cache_key(question_text(question)))]


def filter_and_cache_rubrics(
    question: Any,
    rubrics: Sequence[Rubric],
    scores: Sequence[Sequence[float]],
    path: str | os.PathLike[str] | None = None,
) -> list[Rubric]:
    """Keep the best of a question's rubrics, known and new; `scores` has those of all answers for each rubric.

    A rubric that scores all answers the same is not kept.
    """
    if len(rubrics) != len(scores):
        raise ConfigError(f"There are {len(rubrics)} rubrics and {len(scores)} lists of scores; give one for each.")
    key = cache_key(question_text(question))
    with atomic_cache_update(path) as cache:
        best = best_by_spread(dict(_kept(cache, key)), dict(zip(rubrics, scores, strict=True)))
        cache[key] = [_entry(rubric, spread) for rubric, spread in best.items()]
    return list(best)


def _file(path: str | os.PathLike[str] | None) -> Path:
    """The file at a path; by default one of this user's in the temporary folder, where another's cannot be locked."""
    return Path(tempfile.gettempdir(), f"rubric_cache-{os.getuid()}.json") if path is None else Path(path)


def _entry(rubric: Rubric, spread: float) -> dict[str, Any]:
    scale = None if rubric.score_map is None else {str(score): text for score, text in rubric.score_map.items()}
    return {**vars(rubric), "score_map": scale, "spread": spread}


def _kept(cache: Entries, key: str) -> list[tuple[Rubric, float]]:
    """The entries of a question that can be read."""
    found = []
    for entry in cache.get(key, ()):
        try:
            scale = entry.get("score_map")
            scores = None if scale is None else {float(score): text for score, text in scale.items()}
            rubric = Rubric(entry["title"], entry["description"], entry.get("type", "positive"), scores)
            found.append((rubric, float(entry.get("spread", 0.0))))
        except (ConfigError, KeyError, TypeError, ValueError, AttributeError):
            continue
    return found
