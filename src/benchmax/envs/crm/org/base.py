"""The port between the tools and the records: SOQL and SOSL in, rows out.

Rows are what the REST API of Salesforce returns, less its `attributes`: a field of a related record is nested under the
relationship (`{"Account": {"Name": …}}`), a query that only counts is one row (`{"expr0": 12}`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from benchmax import limits

Row: TypeAlias = dict[str, Any]


class QueryError(Exception):
    """A query was refused; reads `CODE: message`, with the codes of Salesforce."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Org(Protocol):
    """Records that can be queried."""

    async def soql(self, query: str) -> list[Row]:
        """The rows of a SOQL query."""
        ...

    async def sosl(self, query: str) -> list[Row]:
        """The rows of a SOSL search, of all objects that it returns."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


def malformed(message: str) -> QueryError:
    return QueryError("MALFORMED_QUERY", message)


def too_many_rows() -> QueryError:
    most = f"{limits.CRM_QUERY_ROWS:,}"
    return QueryError("OPERATION_TOO_LARGE", f"The query has more than {most} rows. Narrow it, or add a LIMIT.")


def without_empty_columns(rows: Iterable[Row]) -> list[Row]:
    """The rows less every column in which no row has a value."""
    rows = list(rows)
    filled = {name for row in rows for name, value in row.items() if value is not None}
    return [{name: value for name, value in row.items() if name in filled} for row in rows]
