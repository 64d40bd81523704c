"""How right an answer is, by its words alone: 1, 0.5 or 0. For corpora without a judge, and always the same.

1     the same words as the truth, or the same number; words that say nothing ("it is the …") do not count
0.5   most of the truth and little else, with all of its numbers and no other: part of a list, one name of two
0     anything else: a longer text that holds the truth somewhere, several candidates, another number

And which sources it cites: marks such as `[Source: d42]`, each the id of a text or what its metadata calls it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmax.envs.reward_helpers import SOURCE_MARK, CitationScore, accepted_answers, exact_match

CHARS = 4_000
"""Of an answer; a longer one is no answer."""
ANSWER_CHARS, AROUND_CHARS = 80, 1_000
"""How long a concise answer may be at least, and what is said around it."""
HALF_RIGHT = 0.6
"""The harmonic mean of precision and recall that earns one half."""
_WORD = re.compile(r"[^\W_]+(?:[.,:'’/-][^\W_]+)*")
_NUMBER = re.compile(r"\d[\d.,:/-]*")
_FILLER_WORDS = frozenset(
    {
        "a", "an", "the", "is", "are", "was", "were", "be", "it", "its", "this", "that", "of", "in", "on", "at", "to",
        "by", "for", "with", "and", "answer", "so", "he", "she", "they", "his", "her",
    }
)  # fmt: skip
_NAMES = ("source_id", "id", "file", "title", "url")
"""What the metadata of a text may call it by."""


def correctness(answer: str, truth: Any) -> float:
    """The grade of an answer; `truth` may be a list of accepted answers."""
    if not answer.strip() or len(answer) > CHARS:
        return 0.0
    return max((_grade(answer, each) for each in accepted_answers(truth)), default=0.0)


def conciseness(answer: str, said: str, truth: Any) -> float:
    """1 for an answer about as long as the truth with few words around it, less the longer either is."""
    allowed = max(ANSWER_CHARS, 2 * max(map(len, accepted_answers(truth)), default=0))
    return _up_to(len(answer), allowed) * _up_to(len(said), allowed + AROUND_CHARS)


def _up_to(length: int, allowed: int) -> float:
    """1 up to what is allowed, 0 from five times that."""
    return max(0.0, min(1.0, 1.25 - 0.25 * length / allowed))


def _grade(answer: str, truth: str) -> float:
    if exact_match(answer, truth):
        return 1.0
    said, wanted = _words(answer), _words(truth)
    if not said or not wanted:
        return 0.0
    if said == wanted:
        return 1.0
    if _numbers(said) != _numbers(wanted):
        return 0.0
    shared = (Counter(said) & Counter(wanted)).total()
    return 0.5 if 2 * shared >= HALF_RIGHT * (len(said) + len(wanted)) else 0.0


def _words(text: str) -> list[str]:
    """The words that say something, numbers without separators of thousands."""
    found = (word.casefold() for word in _WORD.findall(text))
    said = (word for word in found if word not in _FILLER_WORDS)
    return [re.sub(r",(?=\d{3}\b)", "", word) if _NUMBER.fullmatch(word) else word for word in said]


def _numbers(words: Iterable[str]) -> set[str]:
    return {word for word in words if any(char.isdigit() for char in word)}


def without_citations(text: str) -> str:
    return SOURCE_MARK.sub("", text).strip()


def cited(text: str, chunks: Sequence[Mapping[str, Any]]) -> CitationScore:
    """The share of marks that name one of the texts, and of texts that are named; 0 when there are none."""
    marks = {part.strip().casefold() for mark in SOURCE_MARK.findall(text) for part in mark.split(",")} - {""}
    names = [_names_of(chunk) for chunk in chunks]
    if not marks or not names:
        return CitationScore(0.0, 0.0)
    known = set().union(*names)
    return CitationScore(len(marks & known) / len(marks), sum(bool(marks & each) for each in names) / len(names))


def _names_of(chunk: Mapping[str, Any]) -> set[str]:
    metadata = chunk.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    values = (chunk.get("id"), *map(known.get, _NAMES))
    return {str(value).strip().casefold() for value in values if value not in (None, "")}
