"""What every table is made of: the naming of constraints, ids, and columns that refer to an owner or a run."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Integer, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite numbers rows itself only where the column is a plain INTEGER (of 64 bits there).
BIG = BigInteger().with_variant(Integer(), "sqlite")


def new_id(kind: str) -> str:
    """A random id of 128 bits, such as `run_3f…`."""
    return f"{kind}_{secrets.token_hex(16)}"


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, dict[str, float]: JSON, list[str]: JSON, str: Text, float: Float(53)}  # noqa: RUF012


def owner_column() -> Mapped[str]:
    return mapped_column(String(40), ForeignKey("users.id", ondelete="CASCADE"))


def run_column() -> Mapped[str]:
    return mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"))
