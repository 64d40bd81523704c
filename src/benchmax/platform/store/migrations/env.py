"""Runs migrations on the connection `benchmax.platform.store.database` hands over."""

from __future__ import annotations

from typing import Any

from alembic import context

from benchmax.platform.store.tables import Base


def _include(_: Any, name: str | None, kind: str, *__: Any) -> bool:
    """The full-text index of chunks is made by hand, for each database in its own way."""
    return not (kind in ("table", "index") and (name or "").startswith("chunks_fts"))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    include_object=_include,
    render_as_batch=True,
    # SQLite can roll DDL back; alembic assumes it cannot.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
