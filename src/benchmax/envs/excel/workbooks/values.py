"""Values of cells as JSON, and dates as numbers.

number, text, bool     themselves; a blank cell is null
{"error": "#N/A"}      an error
{"date": "2024-03-05T00:00:00"}, {"time": "08:30:00"}   numbers that are shown as a date or as a time of day
{"unknown": "why"}     a value that cannot be computed
"""

from __future__ import annotations

import datetime
from typing import Any, TypeAlias

Value: TypeAlias = "float | str | bool | dict[str, str] | None"
_EPOCH = datetime.datetime(1899, 12, 30)
_DAY_SECONDS = 86_400


def serial(moment: datetime.datetime) -> float:
    """The number by which a spreadsheet keeps a date."""
    since = moment - _EPOCH
    return since.days + (since.seconds + since.microseconds / 1e6) / _DAY_SECONDS


def from_serial(number: float) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=round(number * _DAY_SECONDS))


def number_of(value: Any) -> float | None:
    """The number in a value: of a date or time its serial number; None for everything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, dict) and "date" in value:
        return serial(datetime.datetime.fromisoformat(value["date"]))
    if isinstance(value, dict) and "time" in value:
        hours, minutes, seconds = (float(part) for part in value["time"].split(":"))
        return (hours * 3600 + minutes * 60 + seconds) / _DAY_SECONDS
    return None


def as_json(value: Any) -> Value:
    """A value as openpyxl reads it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, datetime.datetime):
        return {"date": value.isoformat(timespec="seconds")}
    if isinstance(value, datetime.date):
        return {"date": f"{value.isoformat()}T00:00:00"}
    if isinstance(value, datetime.time):
        return {"time": value.isoformat(timespec="seconds")}
    if isinstance(value, datetime.timedelta):
        return value.total_seconds() / _DAY_SECONDS
    return value if isinstance(value, int | float) and abs(value) < float("inf") else str(value)


def shown(value: Value) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return f"{value:.10g}" if abs(value) < 1e10 else f"{value:.15g}"
    if isinstance(value, dict):
        text = next(iter(value.values()))
        return text.replace("T00:00:00", "").replace("T", " ") if "date" in value else text
    return "null" if value is None else value
