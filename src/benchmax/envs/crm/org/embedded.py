"""A company in SQLite, in memory: read-only, and so shared by all rollouts.

Covered: SOQL and SOSL are parsed and compiled (`benchmax.envs.crm.soql`), never pasted; SQLite itself refuses all
but reading, stops queries that take too many steps, and is used by one thread at a time.
Not covered: records cannot be changed, as no tool changes any.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

from benchmax import limits
from benchmax.envs.crm.company import company_of
from benchmax.envs.crm.org.base import QueryError, Row, too_many_rows, without_empty_columns
from benchmax.envs.crm.org.schema import OBJECTS, Field, SObject, Type, find_object
from benchmax.envs.crm.soql.parser import parse_soql
from benchmax.envs.crm.soql.search import Search, Words, parse_sosl, words_of
from benchmax.envs.crm.soql.sql import compile_select
from benchmax.envs.crm.soql.syntax import Select

COMPANY_FILE = "company.json"
"""Where an MCP server finds which company its rollout is about."""
_STEPS_AT_ONCE = 10_000
"""SQLite's steps between two looks at how many there were."""
_READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_COLUMNS = {
    Type.NUMBER: "NUMERIC",
    Type.BOOLEAN: "INTEGER",
    Type.ID: "TEXT PRIMARY KEY",
    Type.REFERENCE: "TEXT",
    Type.DATE: "TEXT",
    Type.DATETIME: "TEXT",
}
_ONE_AT_A_TIME = threading.Lock()
"""So that rollouts that begin together make their company once."""
_ANY_CASE = "TEXT COLLATE NOCASE"
"""As in Salesforce, texts are compared without regard to capitals; Ids are not."""


class EmbeddedOrg:
    """The records of a company, to be queried."""

    def __init__(self, tables: Mapping[str, Sequence[Row]], today: date) -> None:
        self._today = today
        self._lock = threading.Lock()
        self._steps = 0
        self._words: dict[tuple[str, str], dict[str, Words]] = {}
        """The words of every searched field, by object and field, then by record."""
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self.close = weakref.finalize(self, self._database.close)
        """Frees the records; garbage collection does so, too."""
        for each in OBJECTS.values():
            _fill(self._database, each, tables.get(each.name, ()))
        self._database.commit()
        self._database.execute("PRAGMA query_only = ON")
        self._database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY)
        self._database.set_progress_handler(self._is_too_long, _STEPS_AT_ONCE)

    async def soql(self, query: str) -> list[Row]:
        return self.select(parse_soql(query))

    async def sosl(self, query: str) -> list[Row]:
        return self.search(parse_sosl(query))

    def select(self, select: Select, within: Sequence[str] | None = None) -> list[Row]:
        """The rows of a parsed query, of the records that have these Ids where some are given."""
        compiled = compile_select(select, self._today, within)
        rows = [compiled.row(values) for values in self._fetch(compiled.sql, compiled.parameters)]
        if len(rows) > limits.CRM_QUERY_ROWS:
            raise too_many_rows()
        return without_empty_columns(rows)

    def search(self, search: Search) -> list[Row]:
        rows: list[Row] = []
        for select in search.returning:
            compile_select(select, self._today)  # a wrong name is refused before anything is searched
            rows += self.select(select, self._found(search, select.object))
        return rows if search.limit is None else rows[: search.limit]

    def _found(self, search: Search, name: str) -> list[str]:
        """The Ids of an object's records that a search finds."""
        target = find_object(name)
        assert target is not None  # it was compiled before
        fields = [self._field_words(target, each) for each in target.fields if search.scope(each)]
        records = fields[0] if fields else ()
        return [record for record in records if search.matches([field[record] for field in fields])]

    def _field_words(self, target: SObject, field: Field) -> dict[str, Words]:
        key = (target.name, field.name)
        if key not in self._words:
            texts = self._fetch(f'SELECT "Id", "{field.name}" FROM "{target.name}" ORDER BY rowid')
            self._words[key] = {record: words_of(text or "") for record, text in texts}
        return self._words[key]

    def _fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            self._steps = 0
            try:
                return self._database.execute(sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if "interrupted" in str(error):
                    raise QueryError("QUERY_TIMEOUT", "Your query request was running for too long.") from None
                raise QueryError("QUERY_TOO_COMPLICATED", "Your query is too complicated. Split it.") from None

    def _is_too_long(self) -> bool:
        self._steps += _STEPS_AT_ONCE
        return self._steps > limits.CRM_QUERY_STEPS


def org_of(seed: int) -> EmbeddedOrg:
    """The org of the company of a seed; those asked for last are kept."""
    with _ONE_AT_A_TIME:
        return _made(seed)


@lru_cache(maxsize=16)
def _made(seed: int) -> EmbeddedOrg:
    company = company_of(seed)
    return EmbeddedOrg(company.tables, company.today)


def _fill(database: sqlite3.Connection, target: SObject, rows: Sequence[Row]) -> None:
    columns = ", ".join(f'"{each.name}" {_COLUMNS.get(each.type, _ANY_CASE)}' for each in target.fields)
    database.execute(f'CREATE TABLE "{target.name}" ({columns})')
    places = ", ".join(f":{each.name}" for each in target.fields)
    empty = dict.fromkeys(each.name for each in target.fields)
    database.executemany(f'INSERT INTO "{target.name}" VALUES ({places})', [{**empty, **row} for row in rows])
