"""Date literals: TODAY, LAST_MONTH, LAST_N_DAYS:30 and their like, as spans of days.

A span is the first day and the day after the last. Weeks begin on Sunday, as in an org of the United States.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta

from benchmax.envs.crm.soql.tokens import malformed

Span = tuple[date, date]

_NAMED = re.compile(r"(LAST|THIS|NEXT)_(WEEK|MONTH|QUARTER|YEAR)")
_COUNTED = re.compile(r"(LAST|NEXT)_N_(DAY|WEEK|MONTH|QUARTER|YEAR)S")
_DAYS = {"YESTERDAY": -1, "TODAY": 0, "TOMORROW": 1}
_PLACES = {"LAST": -1, "THIS": 0, "NEXT": 1}


def add_months(day: date, months: int) -> date:
    """The same day of another month, or that month's last; ValueError outside of the calendar."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    for last in range(day.day, 27, -1):
        try:
            return day.replace(year=year, month=month + 1, day=last)
        except ValueError:
            continue
    return day.replace(year=year, month=month + 1)


def _days(today: date, count: int) -> date:
    return today + timedelta(count)


def _weeks(today: date, count: int) -> date:
    return today - timedelta((today.weekday() + 1) % 7) + timedelta(weeks=count)


def _months(today: date, count: int) -> date:
    return add_months(today.replace(day=1), count)


def _quarters(today: date, count: int) -> date:
    return add_months(today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1), 3 * count)


def _years(today: date, count: int) -> date:
    return date(today.year + count, 1, 1)


_BEGINS: dict[str, Callable[[date, int], date]] = {
    "DAY": _days, "WEEK": _weeks, "MONTH": _months, "QUARTER": _quarters, "YEAR": _years,
}  # fmt: skip
"""The first day of the unit that lies so many units from today's."""


def span(name: str, count: int | None, today: date) -> Span:
    """The days that a literal means."""
    try:
        found = _counted(name, count, today) if count is not None else _plain(name, today)
    except (ValueError, OverflowError):
        raise malformed(f"{name}:{count} lies outside of the calendar") from None
    if found is None:
        raise malformed(f"unexpected token: {name[:40]!r}")
    return found


def _plain(name: str, today: date) -> Span | None:
    if name in _DAYS:
        return _days(today, _DAYS[name]), _days(today, _DAYS[name] + 1)
    if name == "LAST_90_DAYS":
        return _days(today, -90), _days(today, 1)
    if name == "NEXT_90_DAYS":
        return _days(today, 1), _days(today, 91)
    if (match := _NAMED.fullmatch(name)) is None:
        return None
    begin, place = _BEGINS[match[2]], _PLACES[match[1]]
    return begin(today, place), begin(today, place + 1)


def _counted(name: str, count: int, today: date) -> Span | None:
    if (match := _COUNTED.fullmatch(name)) is None:
        return None
    begin = _BEGINS[match[2]]
    if match[1] == "LAST":  # of days, the last n and today; of everything longer, whole ones before this one
        return begin(today, -count), begin(today, 1 if match[2] == "DAY" else 0)
    return begin(today, 1), begin(today, count + 1)
