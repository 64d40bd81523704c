"""Tools that compute dates."""

from __future__ import annotations

import calendar
from datetime import datetime, timedelta

from benchmax.envs.crm.org.base import Org
from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.soql.date_literals import add_months
from benchmax.envs.crm.tools.arguments import DATE, read_date
from benchmax.envs.crm.tools.registry import BadArgument, tool

_SPANS: dict[str, tuple[int, int]] = {
    **{name: (number, 1) for number, name in enumerate(calendar.month_name) if name},
    **{f"Q{number}": (3 * number - 2, 3) for number in range(1, 5)},
    "Spring": (3, 3), "Summer": (6, 3), "Fall": (9, 3), "Winter": (12, 3),
}  # fmt: skip
"""The first month of a named period, and how many months it has."""
_BY_NAME = {name.lower(): span for name, span in _SPANS.items()}


@tool(
    "The date that lies so many periods before end_date.",
    end_date=DATE,
    period={"type": "string", "enum": ["day", "week", "month", "quarter"]},
    interval_count={"type": "integer", "minimum": 0},
)
async def get_start_date(org: Org, end_date: str, period: str, interval_count: int) -> str:
    end = read_date("end_date", end_date)
    try:
        return quoting.moment(_before(end, period, interval_count))
    except (ValueError, OverflowError):
        raise BadArgument(f"{interval_count} times a {period} before {end_date} is outside of the calendar.") from None


def _before(end: datetime, period: str, count: int) -> datetime:
    if period in ("day", "week"):
        return end - timedelta(days=count * (7 if period == "week" else 1))
    day = add_months(end.date(), -count * (3 if period == "quarter" else 1))
    return datetime.combine(day, end.time())


@tool(
    "First day of a month, quarter (Q1 to Q4) or season of a year, and the first day after it.",
    period_name={"type": "string", "description": "January … December, Q1 … Q4, Spring, Summer, Fall, Winter"},
    year={"type": "integer", "minimum": 1, "maximum": 9999},
)
async def get_period(org: Org, period_name: str, year: int) -> dict[str, str]:
    span = _BY_NAME.get(period_name.strip().lower())
    if span is None:
        raise BadArgument(f"There is no period {period_name[:40]!r}. The periods are: {', '.join(_SPANS)}.")
    start = datetime(year, span[0], 1)
    try:
        end = datetime.combine(add_months(start.date(), span[1]), start.time())
    except ValueError:
        raise BadArgument(f"{period_name} {year} does not end within the calendar.") from None
    return {"start_date": quoting.moment(start), "end_date": quoting.moment(end)}
