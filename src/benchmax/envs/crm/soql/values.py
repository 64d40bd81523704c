"""What a literal is worth for a field: the value to bind, or why it does not fit.

Texts, Ids and numbers are bound as they are; times as the API writes them in UTC, which sorts as text.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from benchmax.envs.crm.org.base import QueryError, malformed
from benchmax.envs.crm.org.schema import Type
from benchmax.envs.crm.soql.date_literals import span
from benchmax.envs.crm.soql.quoting import read_pattern, read_text
from benchmax.envs.crm.soql.syntax import Literal

_TEXTS = frozenset({Type.ID, Type.REFERENCE, Type.TEXT, Type.EMAIL, Type.PHONE})
_FITS = {Type.NUMBER: "number", Type.BOOLEAN: "boolean", Type.DATE: "date", Type.DATETIME: "datetime"}
_NAMES = {Type.NUMBER: "double", Type.BOOLEAN: "boolean", Type.DATE: "date", Type.DATETIME: "dateTime"}


def write_time(moment: datetime) -> str:
    """A time in UTC as the API writes it."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}+0000"


def bound(literal: Literal, kind: Type, name: str) -> Any:
    """The value to compare a field with; None for null, and for the empty text, which is the same in Salesforce."""
    if literal.kind == "null":
        return None
    if kind in _TEXTS:
        if literal.kind != "string":
            problem = f"value of filter criterion for field '{name}' must be a text, enclosed in quotes"
            raise QueryError("INVALID_FIELD", problem)
        return read_text(literal.value) or None
    if literal.kind != _FITS[kind]:
        quotes = " and should not be enclosed in quotes" if literal.kind == "string" else ""
        raise QueryError(
            "INVALID_FIELD", f"value of filter criterion for field '{name}' must be of type {_NAMES[kind]}{quotes}"
        )
    if kind is Type.DATE:
        return literal.value.isoformat()
    return write_time(literal.value) if kind is Type.DATETIME else literal.value


def pattern(literal: Literal, kind: Type, name: str) -> str:
    """What LIKE compares with."""
    if kind not in _TEXTS - {Type.ID, Type.REFERENCE}:
        raise QueryError("INVALID_QUERY_FILTER_OPERATOR", f"invalid operator on {kind} field: {name} LIKE")
    if literal.kind != "string":
        raise malformed("LIKE compares with a text in single quotes")
    return read_pattern(literal.value)


def span_of(literal: Literal, kind: Type, name: str, today: date) -> tuple[str, str]:
    """The first moment of a date literal, and the first after it, for a field of dates or times."""
    word, number = literal.value
    first, after = span(word, number, today)
    if kind is Type.DATE:
        return first.isoformat(), after.isoformat()
    if kind is Type.DATETIME:
        return f"{first.isoformat()}T00:00:00.000+0000", f"{after.isoformat()}T00:00:00.000+0000"
    raise QueryError("INVALID_FIELD", f"value of filter criterion for field '{name}' is a date, the field is not")
