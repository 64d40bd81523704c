"""A value in the words and forms that the prompt has for it: a switch or a label by its names, a date in its order, a
number with its digits.

The row says `True`, `2`, `2024-03-09` or `0.375`; the prompt asks for "spam" or "ham", for negative, neutral or
positive, for DD.MM.YYYY or 9 March 2024, for 37.5%.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, TypeAlias

Notation: TypeAlias = tuple[str, str]
"""How a value is written, in the same words for every row, and the text."""

MOST_LISTS = 3
"""Lists of names that are read out of one prompt."""
_ITEM = r"[\"'`“*]*[A-Za-z][\w-]*[\"'`”*]*"
_NAMED = re.compile(rf"{_ITEM}(?:,\s+{_ITEM})*,?\s+or\s+{_ITEM}|\b\w+(?:/\w+)+\b|[\[{{(:]\s*{_ITEM}(?:,\s*{_ITEM})+")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_NUMERIC_DATE = re.compile(r"\b\d\d?([./-])\d\d?\1\d{4}\b")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_MENTIONS_MONTH = re.compile(rf"\b(?:month|{'|'.join(f'{month[:3]}|{month}' for month in _MONTHS)})\b")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_GROUPED = re.compile(r"\d,\d{3}\b|thousands? separator|commas? (?:for|between) thousands", re.IGNORECASE)
_PERCENT = re.compile(r"\d\s?%|\bpercent", re.IGNORECASE)
_MONEY = re.compile(r"([$€£])\d")
_DIGITS = re.compile(r"\d\.(\d{1,6})(?!\d|\.\d)|\b(one|two|three|four|1|2|3|4) decimal", re.IGNORECASE)
_POWER = re.compile(r"\d(?:\.(\d{1,6}))?[eE][+-]?\d")
_COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4}
MOST_DIGITS = 2
"""Numbers of decimal places that are read out of one prompt."""
_ORDER = re.compile(r"\b([DMY]{1,4})([./ -])([DMY]{1,4})\2([DMY]{1,4})\b", re.IGNORECASE)


_MONTH = rf"(?P<month>{'|'.join(month[:3] for month in _MONTHS)})[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_SAID_DATES = (
    re.compile(rf"\b{_DAY}(?: of)? {_MONTH},? (?P<year>\d{{4}})\b"),
    re.compile(rf"\b{_MONTH} {_DAY},? (?P<year>\d{{4}})\b"),
    re.compile(r"\b(?P<day>\d\d?)[./](?P<month>\d\d?)[./](?P<year>\d{4})\b"),
    re.compile(r"\b(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4})\b"),
)
"""A date as people write it."""


def iso_dates(text: str) -> Iterator[str]:
    """The dates that a text names, as tools want them: 2024-03-09."""
    for pattern in _SAID_DATES:
        for found in pattern.finditer(text):
            month = found["month"]
            number = int(month) if month.isdecimal() else [each[:3] for each in _MONTHS].index(month) + 1
            try:
                yield date(int(found["year"]), number, int(found["day"])).isoformat()
            except ValueError:
                continue


def spellings(value: Any, prompt: str) -> Iterator[Notation]:
    """The texts that the prompt has for a value; none for one that it has no other text for."""
    if isinstance(value, bool):
        for at, names in enumerate(named(prompt), 1):
            if len(names) == 2:
                yes, no = names
                yield (f"the prompt's words {at}", yes if value else no)
                yield (f"the prompt's words {at}, the second for true", no if value else yes)
    elif isinstance(value, int):
        for at, names in enumerate(named(prompt), 1):
            for first in (0, 1):
                if 0 <= value - first < len(names):
                    yield (f"one of the prompt's words {at}, counted from {first}", names[value - first])
    elif isinstance(value, str) and (day := _date(value)) is not None:
        yield from _dates(day, prompt)
    if not isinstance(value, bool) and (number := _number(value)) is not None:
        yield from _numbers(number, prompt)


def named(prompt: str) -> list[list[str]]:
    """The choices a prompt names: `spam or ham`, `red, green or blue`, `yes/no`, `[low, high]`."""
    lists = [_WORD.findall(re.sub(r"\bor\b", " ", match[0])) for match in _NAMED.finditer(prompt)]
    return [list(names) for names in dict.fromkeys(map(tuple, lists)) if len(names) > 1][:MOST_LISTS]


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text.strip()[:10]) if re.match(r"\d{4}-\d\d-\d\d", text.strip()) else None
    except ValueError:
        return None


def _dates(day: date, prompt: str) -> Iterator[Notation]:
    orders = [match[0] for match in _ORDER.finditer(prompt)]
    orders += [part.join(order) for part in _NUMERIC_DATE.findall(prompt) for order in _NUMERIC_ORDERS]
    for order in dict.fromkeys(orders):
        if (text := _in_order(day, order)) is not None:
            yield (f"a date like {order}", text)
    if _MENTIONS_MONTH.search(prompt):
        full = _MONTHS[day.month - 1]
        for how, month in (("a month in full", full), ("a short month", full[:3])):
            yield (f"day, {how} and year", f"{day.day} {month} {day.year}")
            yield (f"{how}, day and year", f"{month} {day.day}, {day.year}")


_NUMERIC_ORDERS = (("DD", "MM", "YYYY"), ("MM", "DD", "YYYY"))


def _number(value: Any) -> float | int | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value) if "." in value else int(value)
    return value if isinstance(value, int | float) else None


def _numbers(number: float | int, prompt: str) -> Iterator[Notation]:
    """The number with the digits and signs that the prompt shows."""
    found = (match[1] or match[2] for match in _DIGITS.finditer(prompt))
    places = [_COUNTS.get(each.lower(), int(each) if each in "1234" else len(each)) for each in found]
    rounded = list(dict.fromkeys(places))[:MOST_DIGITS]
    comma = "," if _GROUPED.search(prompt) else ""
    if comma:
        yield ("digits in groups", f"{number:,}")
    for count in rounded:
        yield (f"a number with {count} decimals", f"{number:{comma}.{count}f}")
    if _PERCENT.search(prompt):
        shares = [(f"{count} decimals", f"{100 * number:.{count}f}") for count in rounded]
        for how, text in (*shares, ("in full", f"{100 * number:.10g}")):
            yield (f"a percentage, {how}", text)
            yield (f"a percentage with its sign, {how}", f"{text}%")
    if power := _POWER.search(prompt):
        yield ("a number with a power of ten", f"{number:.{len(power[1] or '')}e}")
    for sign in dict.fromkeys(_MONEY.findall(prompt)):
        for count in rounded or [0]:
            yield (f"an amount in {sign}, {count} decimals", f"{sign}{number:{comma}.{count}f}")


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
