"""Work for the runner: jobs, and the one-off jobs that users ask for."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from benchmax.platform.store.tables.base import Base, new_id, owner_column


class Job(Base):
    """Work for the runner. A lease holds it; a lease that ran out may be taken by another supervisor."""

    __tablename__ = "jobs"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"), nullable=True)
    """None only for a one-off job that is about no run."""
    kind: Mapped[str] = mapped_column(String(20), default="train")
    eval_id: Mapped[str | None] = mapped_column(String(40))
    one_off_id: Mapped[str | None] = mapped_column(String(40))
    state: Mapped[str] = mapped_column(String(12), default="queued")
    """`queued`, `leased` or `done`."""
    priority: Mapped[int] = mapped_column(default=0)
    """Higher first, then older first."""
    slots: Mapped[int] = mapped_column(default=1)
    created: Mapped[float] = mapped_column(default=time.time)
    available: Mapped[float] = mapped_column(default=time.time)
    """Not before this time (back-off)."""
    attempts: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=5)
    holder: Mapped[str | None] = mapped_column(String(80))
    holder_pid: Mapped[int | None]
    holder_started: Mapped[float | None]
    """Start time of the holder's process: with the pid it names one process for ever."""
    lease_until: Mapped[float | None]
    child_pid: Mapped[int | None]
    child_started: Mapped[float | None]
    __table_args__ = (Index(None, "state", "priority", "id"), Index(None, "run_id"))


class OneOffJob(Base):
    """What a child process does once for a user, who polls until it is done: a doctor's report, an export."""

    # The name of before, like its ids: databases that are there open as they are, and clients may hold an id.
    __tablename__ = "errands"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("erd"))
    owner_id: Mapped[str] = owner_column()
    run_id: Mapped[str | None] = mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(20))
    """`doctor` or `export`, as the kind of its job."""
    subject: Mapped[str] = mapped_column(String(200))
    """What it is about: the id of an environment, `<checkpoint>/<format>`."""
    options: Mapped[dict[str, Any]] = mapped_column(default=dict)
    status: Mapped[str] = mapped_column(String(20), default="queued")
    """`queued`, `active`, `complete` or `failed`."""
    reason: Mapped[str] = mapped_column(default="")
    result: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created: Mapped[float] = mapped_column(default=time.time)
    ended: Mapped[float | None]
    __table_args__ = (Index(None, "owner_id", "kind", "subject"), Index(None, "run_id"))
