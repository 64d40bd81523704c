"""A value in the words and forms that the prompt has for it: a switch or a label by its names, a date in its order.

The row says `True`, `2` or `2024-03-09`; the prompt asks for "spam" or "ham", for negative, neutral or positive, for
DD.MM.YYYY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

MOST_LISTS = 3
"""Lists of names that are read out of one prompt."""
_ITEM = r"[\"'`“*]*[A-Za-z][\w-]*[\"'`”*]*"
_NAMED = re.compile(rf"{_ITEM}(?:,\s+{_ITEM})*,?\s+or\s+{_ITEM}|\b\w+(?:/\w+)+\b|[\[{{(:]\s*{_ITEM}(?:,\s*{_ITEM})+")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_ORDER = re.compile(r"\b([DMY]{1,4})([./ -])([DMY]{1,4})\2([DMY]{1,4})\b", re.IGNORECASE)


class Spelling(NamedTuple):
    how: str
    """The same words for every row."""
    text: str


def spellings(value: Any, prompt: str) -> Iterator[Spelling]:
    """The texts that the prompt has for a value; none for one that it has no other text for."""
    if isinstance(value, bool):
        for at, names in enumerate(named(prompt), 1):
            if len(names) == 2:
                yes, no = names
                yield Spelling(f"the prompt's words {at}", yes if value else no)
                yield Spelling(f"the prompt's words {at}, the second for true", no if value else yes)
    elif isinstance(value, int):
        for at, names in enumerate(named(prompt), 1):
            for first in (0, 1):
                if 0 <= value - first < len(names):
                    yield Spelling(f"one of the prompt's words {at}, counted from {first}", names[value - first])
    elif isinstance(value, str) and (day := _date(value)) is not None:
        for order in dict.fromkeys(match[0] for match in _ORDER.finditer(prompt)):
            if (text := _in_order(day, order)) is not None:
                yield Spelling(f"a date like {order}", text)


def named(prompt: str) -> list[list[str]]:
    """The choices a prompt names: `spam or ham`, `red, green or blue`, `yes/no`, `[low, high]`."""
    lists = [_WORD.findall(re.sub(r"\bor\b", " ", match[0])) for match in _NAMED.finditer(prompt)]
    return [list(names) for names in dict.fromkeys(map(tuple, lists)) if len(names) > 1][:MOST_LISTS]


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text.strip()[:10]) if re.match(r"\d{4}-\d\d-\d\d", text.strip()) else None
    except ValueError:
        return None


def _in_order(day: date, order: str) -> str | None:
    """The day written as `DD.MM.YYYY` and the like say; None where a part stands twice."""
    parts = {"D": day.day, "M": day.month, "Y": day.year}
    if sorted(set(re.findall(r"[DMY]", order.upper()))) != sorted(parts) or "MMM" in order.upper():
        return None
    return re.sub(
        r"[A-Za-z]+",
        lambda match: str(parts[match[0][0].upper()]).zfill(len(match[0]))[-max(2, len(match[0])) :],
        order,
    )
