"""Date literals: TODAY, LAST_MONTH, LAST_N_DAYS:30 and their like, as spans of days.

A span is the first day and the day after the last. Weeks begin on Sunday, as in an org of the United States.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date, timedelta

from benchmax.envs.crm.org.base import malformed

Span = tuple[date, date]

_COUNTED = re.compile(r"(LAST|NEXT)_N_(DAY|WEEK|MONTH|QUARTER|YEAR)S")
_NAMED = {
    "YESTERDAY": ("DAY", -1), "TODAY": ("DAY", 0), "TOMORROW": ("DAY", 1),
    **{f"LAST_{unit}": (unit, -1) for unit in ("WEEK", "MONTH", "QUARTER", "YEAR")},
    **{f"THIS_{unit}": (unit, 0) for unit in ("WEEK", "MONTH", "QUARTER", "YEAR")},
    **{f"NEXT_{unit}": (unit, 1) for unit in ("WEEK", "MONTH", "QUARTER", "YEAR")},
}  # fmt: skip
"""The unit that a literal names, and how many units it lies from today's."""


def add_months(day: date, months: int) -> date:
    """The same day of another month, or that month's last; ValueError outside of the calendar."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return day.replace(year=year, month=month + 1, day=min(day.day, last))


_BEGINS: dict[str, Callable[[date, int], date]] = {
    "DAY": lambda today, count: today + timedelta(count),
    "WEEK": lambda today, count: today - timedelta((today.weekday() + 1) % 7) + timedelta(weeks=count),
    "MONTH": lambda today, count: add_months(today.replace(day=1), count),
    "QUARTER": lambda today, count: add_months(today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1), 3 * count),
    "YEAR": lambda today, count: date(today.year + count, 1, 1),
}
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
    if name in ("LAST_90_DAYS", "NEXT_90_DAYS"):
        return _counted(name.replace("90", "N"), 90, today)
    if name not in _NAMED:
        return None
    unit, place = _NAMED[name]
    return _BEGINS[unit](today, place), _BEGINS[unit](today, place + 1)


def _counted(name: str, count: int, today: date) -> Span | None:
    if (match := _COUNTED.fullmatch(name)) is None:
        return None
    begin = _BEGINS[match[2]]
    if match[1] == "LAST":  # of days, the last n and today; of everything longer, whole ones before this one
        return begin(today, -count), begin(today, 1 if match[2] == "DAY" else 0)
    return begin(today, 1), begin(today, count + 1)
