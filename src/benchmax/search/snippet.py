"""The part of a text that says most about a query: the window that holds the most of its words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_SPACES = re.compile(r"\s+")
LOOKED_THROUGH = 100_000
"""Characters of a text that are searched for the window."""


def snippet(text: str, words: Sequence[str], chars: int = 160, *, title: str = "") -> str:
    """About `chars` characters of the text on one line, cut at spaces; dots stand for what was left out.

    Words that the title holds are shown with it already: they count only where no other is found.
    """
    text = text[:LOOKED_THROUGH]
    named = title.lower()
    start = _best_start(text, [word for word in words if word not in named] or words, chars)
    end = min(len(text), start + chars)
    if end < len(text):
        end = max(text.rfind(" ", start + 1, end + 1), text.rfind("\n", start + 1, end + 1), start + chars // 2)
    said = _SPACES.sub(" ", text[start:end]).strip()
    return f"{'… ' if start else ''}{said}{' …' if end < len(text) else ''}"


def _best_start(text: str, words: Sequence[str], chars: int) -> int:
    """Where the window begins: at the line of its first word, or a little before that; 0 when no word is found."""
    first = _densest(_places(text, words), chars)
    if first is None:
        return 0
    line = text.rfind("\n", 0, first) + 1
    return line if first - line <= chars // 2 else text.rfind(" ", 0, first - chars // 8) + 1


def _densest(places: Sequence[tuple[int, str]], chars: int) -> int | None:
    """Where the shortest stretch begins that holds as many different words as any of `chars` characters does."""
    inside: Counter[str] = Counter()
    best: tuple[int, int, int] | None = None
    first = 0
    for at, word in places:
        inside[word] += 1
        while at - places[first][0] > chars // 2 or inside[places[first][1]] > 1:
            inside[places[first][1]] -= 1
            first += 1
        held = sum(count > 0 for count in inside.values()), places[first][0] - at, -places[first][0]
        best = held if best is None or held > best else best
    return None if best is None else -best[2]


def _places(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    """Where words begin that begin like a word of the query: `boundary` finds `boundaries`, too."""
    stems = sorted({_stem(word) for word in words}, key=len, reverse=True)
    if not stems:
        return []
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, stems))})", re.IGNORECASE)
    return [(found.start(), found[0].lower()) for found in pattern.finditer(text)]


def _stem(word: str) -> str:
    """The word without the end that differs between one and several."""
    for ending in ("ies", "s", "y"):
        if word.endswith(ending) and len(word) > len(ending) + 3:
            return word.removesuffix(ending)
    return word
