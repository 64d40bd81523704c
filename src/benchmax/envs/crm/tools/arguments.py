"""Arguments that several tools take: their schemas, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.tools.registry import BadArgument, Schema
from benchmax.envs.generated_tasks import TEXT

_CALL_FORM = "%Y-%m-%dT%H:%M:%SZ"
_RECORD_FORMS = ("%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M:%S%z")

TEXTS: Schema = {"type": "array", "items": TEXT}
DATE: Schema = {"type": "string", "description": "such as 2021-05-01T00:00:00Z"}
NUMBERS_BY_ID: Schema = {"type": "object", "additionalProperties": {"type": "number"}}


def rows_with(*columns: str) -> Schema:
    """A list of records that have these columns."""
    return {"type": "array", "items": {"type": "object", "required": list(columns)}}


def read_date(name: str, text: str) -> datetime:
    """A date as it is given to a tool."""
    try:
        return datetime.strptime(text, _CALL_FORM)
    except ValueError:
        raise BadArgument(f"{name} must be written like 2021-05-01T00:00:00Z, not {text[:60]!r}.") from None


def read_span(start_date: str, end_date: str) -> tuple[datetime, datetime]:
    """Two dates, the first not after the second."""
    start, end = read_date("start_date", start_date), read_date("end_date", end_date)
    if start > end:
        raise BadArgument(f"start_date {start_date} is after end_date {end_date}.")
    return start, end


def created_in(start_date: str, end_date: str) -> str:
    """The condition of records that were created from a date to before another."""
    start, end = read_span(start_date, end_date)
    return f"CreatedDate >= {quoting.moment(start)} AND CreatedDate < {quoting.moment(end)}"


def search_words(search_term: str) -> str:
    """The words to find, for between the braces of FIND."""
    if not any(map(str.isalnum, search_term)):
        raise BadArgument(f"search_term needs a word to search for, not {search_term[:60]!r}.")
    return quoting.search_words(search_term)


def record_time(case: Mapping[str, Any], column: str) -> datetime:
    """A time of a record, as queries return it."""
    text = case.get(column)
    for form in _RECORD_FORMS:
        try:
            return datetime.strptime(str(text), form).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    raise BadArgument(f"{column} must be written like 2021-05-01T09:30:00.000+0000, not {str(text)[:60]!r}.")


def record_text(case: Mapping[str, Any], column: str) -> str:
    """A text of a record."""
    value = case.get(column)
    if not isinstance(value, str) or not value:
        raise BadArgument(f"Every case needs {column}, a text; one has {str(value)[:60]!r}.")
    return value


def some(name: str, values: Iterable[str]) -> list[str]:
    """The different values of a list that must have some."""
    found = list(dict.fromkeys(values))
    if not found:
        raise BadArgument(f"{name} is empty. Give at least one.")
    return found
