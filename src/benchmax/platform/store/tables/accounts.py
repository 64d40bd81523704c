"""Users, their API keys, sign-ins, secrets, endpoints and webhooks, and the audit log."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ForeignKey, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from benchmax.platform.store.tables.base import BIG, Base, new_id, owner_column


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
    user_id: Mapped[str] = owner_column()
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


class Login(Base):
    __tablename__ = "sessions"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = owner_column()
    created: Mapped[float] = mapped_column(default=time.time)
    last_seen: Mapped[float] = mapped_column(default=time.time)
    expires: Mapped[float]
    __table_args__ = (Index(None, "user_id"),)


class LoginLink(Base):
    __tablename__ = "login_links"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = owner_column()
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


class Endpoint(Base):
    """An OpenAI-compatible server a user named in settings."""

    __tablename__ = "endpoints"
    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("end"))
    owner_id: Mapped[str] = owner_column()
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
    owner_id: Mapped[str] = owner_column()
    run_id: Mapped[str] = mapped_column(String(40), default="")
    """The run it is for, or empty. Not a foreign key, so that it can be part of the unique name."""
    name: Mapped[str] = mapped_column(String(200))
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)
    created: Mapped[float] = mapped_column(default=time.time)
    __table_args__ = (UniqueConstraint("owner_id", "run_id", "name"),)


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
