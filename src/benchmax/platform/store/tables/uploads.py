"""Uploaded files and corpora."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from benchmax.platform.store.tables.base import BIG, Base, new_id, owner_column


class Blob(Base):
    """A file in the store, found by its content's SHA-256."""

    __tablename__ = "blobs"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BIG)
    created: Mapped[float] = mapped_column(default=time.time)
    rows: Mapped[int | None]
    """Rows of a dataset, once they were counted."""


class BlobPath(Base):
    """A name an owner gave to a blob; never a path on the server's disk."""

    __tablename__ = "blob_paths"
    owner_id: Mapped[str] = mapped_column(String(40), ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    path: Mapped[str] = mapped_column(String(500), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), ForeignKey("blobs.sha256"))
    mime_type: Mapped[str] = mapped_column(String(100))
    updated: Mapped[float] = mapped_column(default=time.time)


class Upload(Base):
    """A permit to PUT one file once."""

    __tablename__ = "uploads"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner_id: Mapped[str] = owner_column()
    path: Mapped[str] = mapped_column(String(500))
    mime_type: Mapped[str] = mapped_column(String(100))
    expires: Mapped[float]
    used: Mapped[bool] = mapped_column(default=False)
    key_id: Mapped[str | None] = mapped_column(String(40))
    """The key that asked for it; None when a signed-in person did."""


class Corpus(Base):
    __tablename__ = "corpora"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("cor"))
    owner_id: Mapped[str] = owner_column()
    name: Mapped[str] = mapped_column(String(200))
    created: Mapped[float] = mapped_column(default=time.time)
    updated: Mapped[float | None] = mapped_column(default=time.time)
    """When it last got chunks."""
    __table_args__ = (UniqueConstraint("owner_id", "name"),)


class Chunk(Base):
    __tablename__ = "chunks"
    n: Mapped[int] = mapped_column(BIG, primary_key=True)
    corpus_id: Mapped[str] = mapped_column(String(40), ForeignKey("corpora.id", ondelete="CASCADE"))
    id: Mapped[str] = mapped_column(String(200))
    content: Mapped[str]
    meta: Mapped[dict[str, Any]] = mapped_column("metadata", default=dict)
    __table_args__ = (UniqueConstraint("corpus_id", "id"),)
