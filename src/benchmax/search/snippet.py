"""The part of a text that says most about a query: the window that holds the most of its words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_SPACES = re.compile(r"\s+")
LOOKED_THROUGH = 100_000
"""Characters of a text that are searched for the window."""


def snippet(text: str, words: Sequence[str], chars: int = 160) -> str:
    """About `chars` characters of the text on one line, cut at spaces; dots stand for what was left out."""
    text = text[:LOOKED_THROUGH]
    start = _best_start(text, words, chars)
    end = min(len(text), start + chars)
    if end < len(text):
        end = max(text.rfind(" ", start + 1, end + 1), start + chars // 2)
    said = _SPACES.sub(" ", text[start:end]).strip()
    return f"{'… ' if start else ''}{said}{' …' if end < len(text) else ''}"


def _best_start(text: str, words: Sequence[str], chars: int) -> int:
    """Where the window begins: a little before its first word, at a space; 0 when no word is found."""
    places = _places(text, words)
    if not places:
        return 0
    inside: Counter[str] = Counter()
    best, most, first = places[0][0], 0, 0
    for at, word in places:
        inside[word] += 1
        while places[first][0] < at - chars // 2:
            gone = places[first][1]
            inside[gone] -= 1
            inside += Counter()  # drops words that are counted 0
            first += 1
        if len(inside) > most:
            best, most = places[first][0], len(inside)
    if best <= chars // 2:
        return 0
    return text.rfind(" ", 0, best - chars // 8) + 1


def _places(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    """Where words begin that begin like a word of the query: `boundary` finds `boundaries`, too."""
    stems = sorted({word[: max(4, len(word) - 2)] for word in words}, key=len, reverse=True)
    if not stems:
        return []
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, stems))})", re.IGNORECASE)
    return [(found.start(), found[0].lower()) for found in pattern.finditer(text)]
