"""What the queries of all rooms need: inserting or replacing many rows, counting changed ones, one's own row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import CursorResult, Delete, Update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import Base

Row = TypeVar("Row", bound=Base)


def upsert(db: Session, table: type[Base], rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
    """Insert rows; those whose key is there already are replaced, or left alone when the key is all there is."""
    if not rows:
        return
    dialect = postgresql if db.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    columns = [table.__table__.c[name] for name in key]
    replaced = {name: statement.excluded[name] for name in rows[0] if name not in key}
    if replaced:
        statement = statement.on_conflict_do_update(index_elements=columns, set_=replaced)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=columns)
    # Through the connection: the driver's executemany, several times faster than one long VALUES.
    db.flush()
    db.connection().execute(statement, rows)


def changed_rows(db: Session, statement: Update | Delete) -> int:
    """Execute the statement; returns how many rows it changed."""
    result = db.execute(statement)
    return result.rowcount if isinstance(result, CursorResult) else 0


def get_if(db: Session, table: type[Row], row_id: str, **columns: Any) -> Row | None:
    """The row of that id, if its columns have these values, such as `owner_id`."""
    row = db.get(table, row_id)
    return row if row is not None and all(getattr(row, name) == value for name, value in columns.items()) else None


def get_locked(db: Session, table: type[Row], row_id: str) -> Row | None:
    """The row of that id as it is in the database now; others cannot change it until this transaction ends."""
    return db.get(table, row_id, with_for_update=True, populate_existing=True)
