"""Every table. Times are Unix seconds; ids are random text of ours, or counters where order matters.

Points, rollouts, events and logs can be rebuilt from the run directories; the rest lives only here.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

TERMINAL = frozenset({"complete", "failed", "stalled", "cancelled"})
"""Statuses a run does not leave by itself; the others are `pending` and `active`."""


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


def _owner() -> Mapped[str]:
    return mapped_column(String(40), ForeignKey("users.id", ondelete="CASCADE"))


def _run() -> Mapped[str]:
    return mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"))


# People


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("usr"))
    email: Mapped[str] = mapped_column(String(320), unique=True)
    role: Mapped[str] = mapped_column(String(16), default="member")
    """`admin` or `member`."""
    password_hash: Mapped[str | None]
    created: Mapped[float] = mapped_column(default=time.time)
    deleted: Mapped[float | None]
    """Removed by an administrator; the row stays for the audit log and has no address any more."""


class ApiKey(Base):
    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("key"))
    user_id: Mapped[str] = _owner()
    name: Mapped[str] = mapped_column(String(200), default="")
    prefix: Mapped[str] = mapped_column(String(8))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """SHA-256 of the key; the key itself is shown once and not kept."""
    scopes: Mapped[list[str]]
    created: Mapped[float] = mapped_column(default=time.time)
    expires: Mapped[float | None]
    last_used: Mapped[float | None]
    revoked: Mapped[float | None]
    parent_id: Mapped[str | None] = mapped_column(String(40))
    """The key that made this one, and ends it when it ends; None for one that a signed-in person made."""
    __table_args__ = (Index(None, "user_id"),)


class WebSession(Base):
    __tablename__ = "sessions"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = _owner()
    created: Mapped[float] = mapped_column(default=time.time)
    last_seen: Mapped[float] = mapped_column(default=time.time)
    expires: Mapped[float]
    __table_args__ = (Index(None, "user_id"),)


class LoginLink(Base):
    __tablename__ = "login_links"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = _owner()
    created: Mapped[float] = mapped_column(default=time.time)
    expires: Mapped[float]


class LoginFailure(Base):
    """Failed passwords by account and address; rows older than the lock-out are dropped."""

    __tablename__ = "login_failures"
    id: Mapped[int] = mapped_column(primary_key=True)
    account: Mapped[str] = mapped_column(String(320))
    address: Mapped[str] = mapped_column(String(64))
    time: Mapped[float] = mapped_column(default=time.time)
    __table_args__ = (Index(None, "account", "address", "time"),)


class DeviceCode(Base):
    __tablename__ = "device_codes"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_code: Mapped[str] = mapped_column(String(16), unique=True)
    client_id: Mapped[str] = mapped_column(String(100))
    address: Mapped[str] = mapped_column(String(80), default="")
    """Where the device asked from."""
    created: Mapped[float] = mapped_column(default=time.time)
    expires: Mapped[float]
    polled: Mapped[float] = mapped_column(default=0.0)
    user_id: Mapped[str | None] = mapped_column(String(40), ForeignKey("users.id", ondelete="CASCADE"))
    """Who approved it."""
    key_id: Mapped[str | None] = mapped_column(String(40))
    """With which key; None when a signed-in person did."""
    denied: Mapped[bool] = mapped_column(default=False)


class Audit(Base):
    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(BIG, primary_key=True)
    time: Mapped[float] = mapped_column(default=time.time)
    user_id: Mapped[str | None] = mapped_column(String(40))
    """Not a foreign key: the row outlives the user."""
    actor: Mapped[str] = mapped_column(String(100), default="")
    """`key:<prefix>`, `session`, or empty."""
    action: Mapped[str] = mapped_column(String(60))
    target: Mapped[str] = mapped_column(String(200), default="")
    address: Mapped[str] = mapped_column(String(64), default="")
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)
    __table_args__ = (Index(None, "user_id", "id"),)


# Files


class Blob(Base):
    """A file in the store, found by its content's SHA-256."""

    __tablename__ = "blobs"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BIG)
    created: Mapped[float] = mapped_column(default=time.time)
    rows: Mapped[int | None]
    """Rows of a dataset, once somebody counted them."""


class BlobPath(Base):
    """A name an owner gave to a blob; it never is a path on the server."""

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
    owner_id: Mapped[str] = _owner()
    path: Mapped[str] = mapped_column(String(500))
    mime_type: Mapped[str] = mapped_column(String(100))
    expires: Mapped[float]
    used: Mapped[bool] = mapped_column(default=False)
    key_id: Mapped[str | None] = mapped_column(String(40))
    """The key that asked for it; None when a signed-in person did."""


# Runs


class Run(Base):
    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("run"))
    owner_id: Mapped[str] = _owner()
    name: Mapped[str] = mapped_column(String(300))
    kind: Mapped[str] = mapped_column(String(40), default="simple")
    """The `training_run_type` asked for."""
    status: Mapped[str] = mapped_column(String(20), default="pending")
    reason: Mapped[str] = mapped_column(default="")
    """Why it is in this status, in words."""
    activity: Mapped[str] = mapped_column(default="")
    """The latest thing it did, in words."""
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
    """The highest there ever was: a trainer that was killed goes back to its checkpoint and does some again."""
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


class Series(Base):
    __tablename__ = "series"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = _run()
    mode: Mapped[str] = mapped_column(String(40))
    name: Mapped[str] = mapped_column(String(300))
    __table_args__ = (UniqueConstraint("run_id", "mode", "name"),)


class Point(Base):
    """One value of one series. The primary key is the order on disk, so a chart is one range read."""

    __tablename__ = "points"
    run_id: Mapped[str] = mapped_column(String(40), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
    time: Mapped[float]
    __table_args__ = ({"sqlite_with_rowid": False},)


class RolloutRow(Base):
    """What lists, filters and charts need of a rollout; its body stays in the run directory's file."""

    __tablename__ = "rollouts"
    n: Mapped[int] = mapped_column(BIG, primary_key=True)
    run_id: Mapped[str] = _run()
    id: Mapped[str] = mapped_column(String(80))
    mode: Mapped[str] = mapped_column(String(40))
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
        Index("ix_rollouts_chart", "run_id", "mode", "eval_id", "example_id", "step", "reward"),
        Index("ix_rollouts_step", "run_id", "mode", "eval_id", "step"),
    )


class EnvLog(Base):
    __tablename__ = "env_logs"
    id: Mapped[int] = mapped_column(BIG, primary_key=True)
    run_id: Mapped[str] = _run()
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
    run_id: Mapped[str] = _run()
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
    run_id: Mapped[str] = _run()
    name: Mapped[str] = mapped_column(String(200), default="")
    model: Mapped[str] = mapped_column(String(200))
    """`base`, `checkpoint:<name>` or `endpoint:<endpoint id>`."""
    status: Mapped[str] = mapped_column(String(20), default="pending")
    reason: Mapped[str] = mapped_column(default="")
    done: Mapped[int] = mapped_column(default=0)
    total: Mapped[int] = mapped_column(default=0)
    options: Mapped[dict[str, Any]] = mapped_column(default=dict)
    summary: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created: Mapped[float] = mapped_column(default=time.time)
    ended: Mapped[float | None]
    __table_args__ = (Index(None, "run_id"),)


class OneOffJob(Base):
    """What a child does once for a user, who asks until it is done: a doctor's report, an export."""

    __tablename__ = "errands"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("erd"))
    owner_id: Mapped[str] = _owner()
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


class Endpoint(Base):
    """An OpenAI-compatible server a user named in settings."""

    __tablename__ = "endpoints"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("end"))
    owner_id: Mapped[str] = _owner()
    name: Mapped[str] = mapped_column(String(200))
    base_url: Mapped[str]
    model: Mapped[str] = mapped_column(String(200))
    secret_id: Mapped[str | None] = mapped_column(String(40), ForeignKey("secrets.id", ondelete="SET NULL"))
    created: Mapped[float] = mapped_column(default=time.time)
    __table_args__ = (UniqueConstraint("owner_id", "name"),)


class Secret(Base):
    """A value kept encrypted: a user's (no run), or one a launch carried for its run alone."""

    __tablename__ = "secrets"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("sec"))
    owner_id: Mapped[str] = _owner()
    run_id: Mapped[str] = mapped_column(String(40), default="")
    """The run it is for, or empty. Not a foreign key, so that it can be part of the unique name."""
    name: Mapped[str] = mapped_column(String(200))
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)
    created: Mapped[float] = mapped_column(default=time.time)
    __table_args__ = (UniqueConstraint("owner_id", "run_id", "name"),)


class Corpus(Base):
    __tablename__ = "corpora"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("cor"))
    owner_id: Mapped[str] = _owner()
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
