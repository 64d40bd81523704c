"""Runs and what they recorded. Metrics, rollouts, events and logs can be rebuilt from the run directories."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from benchmax.platform.store.tables.base import BIG, Base, new_id, owner_column, run_column
from benchmax.platform.wire.values import RunStatus


class Run(Base):
    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("run"))
    owner_id: Mapped[str] = owner_column()
    name: Mapped[str] = mapped_column(String(300))
    kind: Mapped[str] = mapped_column(String(40), default="simple")
    """The `training_run_type` asked for."""
    status: Mapped[RunStatus] = mapped_column(String(20), default="pending")
    reason: Mapped[str] = mapped_column(default="")
    """Why it is in this status, as text."""
    activity: Mapped[str] = mapped_column(default="")
    """The latest thing it did, as text."""
    args: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Launch arguments, defaults filled in."""
    paths: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The four blob paths: env_cls_path, env_metadata_path, train_dataset_path, eval_dataset_path."""
    blobs: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The SHA-256 each of the four paths had at launch, under the same names."""
    total_steps: Mapped[int | None]
    latest_step: Mapped[int | None]
    """The last one that is recorded."""
    furthest_step: Mapped[int | None]
    """The highest there ever was: a trainer that was killed repeats steps from its checkpoint."""
    error_count: Mapped[int] = mapped_column(default=0)
    created: Mapped[float] = mapped_column(default=time.time)
    updated: Mapped[float] = mapped_column(default=time.time)
    started: Mapped[float | None]
    ended: Mapped[float | None]
    cancel_requested: Mapped[float | None]
    is_public: Mapped[bool] = mapped_column(default=False)
    archived: Mapped[bool] = mapped_column(default=False)
    deleted: Mapped[float | None]
    """Hidden at once; the runner removes the files and then the row."""
    tags: Mapped[list[str]] = mapped_column(default=list)
    pinned: Mapped[bool] = mapped_column(default=False)
    notes: Mapped[str] = mapped_column(default="")
    asked: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The launch arguments that were given; the rest of `args` are defaults."""
    parent: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """`{"run_id", "checkpoint"}` of the run this one was forked from."""
    __table_args__ = (Index(None, "owner_id", "created"),)


class MetricName(Base):
    __tablename__ = "series"  # tables and columns have the names of before; the code says metric and split
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = run_column()
    split: Mapped[str] = mapped_column("mode", String(40), key="split")
    name: Mapped[str] = mapped_column(String(300))
    __table_args__ = (UniqueConstraint("run_id", "split", "name"),)


class MetricValue(Base):
    """One value of one metric. The primary key is the order on disk, so a chart is one range read."""

    __tablename__ = "points"
    run_id: Mapped[str] = mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    metric_id: Mapped[int] = mapped_column(
        "series_id", ForeignKey("series.id", ondelete="CASCADE"), key="metric_id", primary_key=True
    )
    step: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
    time: Mapped[float]
    __table_args__ = ({"sqlite_with_rowid": False},)


class RolloutRow(Base):
    """What lists, filters and charts need of a rollout; its body stays in the run directory's file."""

    __tablename__ = "rollouts"
    n: Mapped[int] = mapped_column(BIG, primary_key=True)
    run_id: Mapped[str] = run_column()
    id: Mapped[str] = mapped_column(String(80))
    split: Mapped[str] = mapped_column("mode", String(40), key="split")
    eval_id: Mapped[str] = mapped_column(String(40), default="")
    """The external eval it belongs to, or empty."""
    step: Mapped[int]
    example_id: Mapped[str] = mapped_column(String(80))
    prompt_text: Mapped[str]
    sample: Mapped[int] = mapped_column(default=0)
    reward: Mapped[float | None]
    """None when unscored; never 0 for it."""
    components: Mapped[dict[str, float]] = mapped_column(default=dict)
    termination: Mapped[str] = mapped_column(String(40), default="unknown")
    error_type: Mapped[str | None] = mapped_column(String(100))
    ok: Mapped[bool] = mapped_column(default=False)
    discarded: Mapped[str | None]
    advantage: Mapped[float | None]
    tokens: Mapped[int] = mapped_column(default=0)
    turns: Mapped[int] = mapped_column(default=0)
    tools: Mapped[list[str]] = mapped_column(default=list)
    started_at: Mapped[float] = mapped_column(default=0.0)
    seconds: Mapped[float] = mapped_column(default=0.0)
    file: Mapped[str] = mapped_column(String(200))
    """Relative to the run directory."""
    offset: Mapped[int] = mapped_column(BIG)
    length: Mapped[int] = mapped_column(BIG)
    __table_args__ = (
        UniqueConstraint("run_id", "id"),
        Index("ix_rollouts_chart", "run_id", "split", "eval_id", "example_id", "step", "reward"),
        Index("ix_rollouts_step", "run_id", "split", "eval_id", "step"),
    )


class EnvLog(Base):
    __tablename__ = "env_logs"
    id: Mapped[int] = mapped_column(BIG, primary_key=True)
    run_id: Mapped[str] = run_column()
    rollout_id: Mapped[str | None] = mapped_column(String(80))
    step: Mapped[int | None]
    time: Mapped[float]
    level: Mapped[str] = mapped_column(String(20))
    message: Mapped[str]
    traceback: Mapped[str | None]
    __table_args__ = (Index(None, "run_id", "rollout_id"), Index(None, "run_id", "id"))


class Event(Base):
    """The feed of a run. Ids of one run only grow, in the order readers can see them."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(BIG, primary_key=True)
    run_id: Mapped[str] = run_column()
    time: Mapped[float] = mapped_column(default=time.time)
    category: Mapped[str] = mapped_column(String(20))
    """`lifecycle`, `artifact`, `diagnostic`, `alert`; `feed` is for live readers only (new points, new rollouts)."""
    kind: Mapped[str] = mapped_column(String(80))
    message: Mapped[str] = mapped_column(default="")
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)
    __table_args__ = (Index(None, "run_id", "id"), {"sqlite_autoincrement": True})


class Cursor(Base):
    """How far a file of a run directory was read."""

    __tablename__ = "ingest_cursors"
    run_id: Mapped[str] = mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    file: Mapped[str] = mapped_column(String(200), primary_key=True)
    offset: Mapped[int] = mapped_column(BIG, default=0)
    inode: Mapped[int] = mapped_column(BIG, default=0)


class Eval(Base):
    """An evaluation outside training: a checkpoint, the base model or another endpoint on the run's eval rows."""

    __tablename__ = "evals"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("evl"))
    run_id: Mapped[str] = run_column()
    name: Mapped[str] = mapped_column(String(200), default="")
    model: Mapped[str] = mapped_column(String(200))
    """`base`, `checkpoint:<name>` or `endpoint:<endpoint id>`."""
    status: Mapped[RunStatus] = mapped_column(String(20), default="pending")
    reason: Mapped[str] = mapped_column(default="")
    done: Mapped[int] = mapped_column(default=0)
    total: Mapped[int] = mapped_column(default=0)
    options: Mapped[dict[str, Any]] = mapped_column(default=dict)
    summary: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created: Mapped[float] = mapped_column(default=time.time)
    ended: Mapped[float | None]
    __table_args__ = (Index(None, "run_id"),)
