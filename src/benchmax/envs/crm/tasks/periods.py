"""Spans of time in a question: a month or quarter by name, or the last weeks, months or quarters before today."""

from __future__ import annotations

import calendar
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

from benchmax.envs.crm.company.records import TODAY
from benchmax.envs.crm.soql.date_literals import add_months
from benchmax.envs.crm.tasks.kinds import Call, Facts, call

_TODAY = f"{TODAY.isoformat()}T00:00:00Z"
_BACK = {"week": range(6, 13), "month": range(2, 6), "quarter": range(1, 3)}
"""How many of each unit a question may reach back."""


@dataclass(frozen=True, slots=True)
class Period:
    """A span of days, the words for it, and the facts with which tools find it."""

    start: date
    end: date
    """The first day after it."""
    words: str
    facts: Facts
    required: str = ""

    def holds(self, moment: str | None) -> bool:
        """Whether a day or time of a record lies in it."""
        return moment is not None and self.start.isoformat() <= moment[:10] < self.end.isoformat()


def draw_period(rng: Random, *, months: int = 1, hard: bool = False) -> Period:
    """A month or quarter of the two years that have cases, or, for hard tasks, some time before today as well."""
    if hard and rng.randrange(3) == 0:
        return _before_today(rng)
    year, first = rng.choice([(2021, 2), (2022, 0)])
    if months == 3:
        quarter = rng.randrange(1, 5) if year == 2022 else rng.randrange(2, 5)
        return _named(f"Q{quarter}", year, 3 * quarter - 2, 3)
    month = rng.randrange(first + 1, 13)
    return _named(calendar.month_name[month], year, month, 1)


def a_year(year: int) -> Period:
    """A whole year; its facts are dates, as no tool knows years."""
    return Period(date(year, 1, 1), date(year + 1, 1, 1), f"in {year}", {"year": year})


def _named(name: str, year: int, month: int, months: int) -> Period:
    start = date(year, month, 1)
    return Period(start, add_months(start, months), f"in {name} {year}", {"period_name": name, "year": year})


def _before_today(rng: Random) -> Period:
    unit = rng.choice(list(_BACK))
    count = rng.choice(_BACK[unit])
    if unit == "week":
        start = TODAY - timedelta(weeks=count)
    else:
        start = add_months(TODAY, -count * (3 if unit == "quarter" else 1))
    words = f"in the last {count} {unit}s before today" if count > 1 else f"in the last {unit} before today"
    facts = {"period": unit, "interval_count": count}
    return Period(start, TODAY, words, facts, f"Today is {TODAY.isoformat()}. The day itself does not count.")


def find_dates(facts: Mapping[str, Any]) -> Generator[Call, str, tuple[str, str]]:
    """The dates of a period by the tools: the start, and the first moment after it."""
    if "interval_count" in facts:
        unit, count = facts["period"], facts["interval_count"]
        start = yield from call("get_start_date", end_date=_TODAY, period=unit, interval_count=count)
        return start, _TODAY
    if "period_name" not in facts:
        return f"{facts['year']}-01-01T00:00:00Z", f"{facts['year'] + 1}-01-01T00:00:00Z"
    found = yield from call("get_period", period_name=facts["period_name"], year=facts["year"])
    return found["start_date"], found["end_date"]
