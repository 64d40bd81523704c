"""Webhooks: where a user wants to be notified, and what was sent there."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from benchmax.platform.store.tables.base import BIG, Base, new_id, owner_column


class Webhook(Base):
    """An address that receives a signed JSON body when something happens to its owner's runs."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("whk"))
    owner_id: Mapped[str] = owner_column()
    url: Mapped[str]
    events: Mapped[list[str]]
    secret_id: Mapped[str | None] = mapped_column(String(40), ForeignKey("secrets.id", ondelete="SET NULL"))
    """What its deliveries are signed with."""
    created: Mapped[float] = mapped_column(default=time.time)
    __table_args__ = (Index(None, "owner_id"),)


class Delivery(Base):
    """One message to one webhook: waiting, delivered or given up."""

    __tablename__ = "deliveries"
    id: Mapped[int] = mapped_column(BIG, primary_key=True)
    webhook_id: Mapped[str] = mapped_column(String(40), ForeignKey("webhooks.id", ondelete="CASCADE"))
    subject: Mapped[str] = mapped_column(String(200))
    """What it reports: a webhook gets it once, however often a run's records are read."""
    event: Mapped[str] = mapped_column(String(40))
    run_id: Mapped[str] = mapped_column(String(40), default="")
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(12), default="queued")
    """`queued`, `delivered` or `failed`."""
    attempts: Mapped[int] = mapped_column(default=0)
    available: Mapped[float] = mapped_column(default=time.time)
    """Not before this time: the pause after an attempt that failed, or the lease of one that is being made."""
    created: Mapped[float] = mapped_column(default=time.time)
    ended: Mapped[float | None]
    answer: Mapped[int | None]
    """The HTTP status of the last attempt; None when nothing answered."""
    problem: Mapped[str] = mapped_column(default="")
    """Why the last attempt failed."""
    __table_args__ = (UniqueConstraint("webhook_id", "subject"), Index(None, "state", "available"))
