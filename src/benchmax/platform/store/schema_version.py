"""The version of the tables: older ones are migrated, those of a newer benchmax are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from benchmax.errors import UsageError

MIGRATIONS = Path(__file__).with_name("migrations")
WRITES = "benchmax_writes"
"""The option of a connection whose transactions write."""


def alembic_config(connection: Connection) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine) -> None:
    """Bring the tables to this version, all or nothing."""
    from alembic import command

    writer = engine.execution_options(**{WRITES: True})
    with writer.connect() as connection, _keys_unchecked(connection), connection.begin():
        if not _is_current(connection):
            command.upgrade(alembic_config(connection), "head")
            if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise UsageError("The database has rows that belong to nothing. It was left as it is; use a backup.")


@contextmanager
def _keys_unchecked(connection: Connection) -> Iterator[None]:
    """SQLite alters a table by making it anew: with foreign keys on, dropping the old one would delete, by cascade,
    every row that refers to it. The pragma counts only outside a transaction."""
    plain = connection.connection.dbapi_connection
    if connection.dialect.name != "sqlite" or plain is None:
        yield
        return
    plain.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        plain.execute("PRAGMA foreign_keys=ON")


def check_revision(engine: Engine) -> None:
    """Raise for tables of another version, with what to do."""
    with engine.connect() as connection:
        if not _is_current(connection):
            raise UsageError(
                "The database has the tables of an older benchmax. Start the server once; it brings them up."
            )


def _is_current(connection: Connection) -> bool:
    """Whether the tables are of this version; refuses one this benchmax does not know."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    found, scripts = MigrationContext.configure(connection).get_current_revision(), ScriptDirectory(str(MIGRATIONS))
    try:
        if found is not None:
            scripts.get_revision(found)
    except CommandError:
        raise UsageError(
            f"The database was written by a newer benchmax (tables {found}). Upgrade benchmax, or use another "
            "data directory (BENCHMAX_DATA); this version leaves it as it is."
        ) from None
    return found == scripts.get_current_head()
