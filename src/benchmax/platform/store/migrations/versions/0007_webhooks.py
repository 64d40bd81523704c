"""Webhooks: addresses that are told of alerts and ends of runs, and what was sent to them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FLOAT = sa.Float(precision=53)


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("secret_id", sa.String(40), sa.ForeignKey("secrets.id", ondelete="SET NULL")),
        sa.Column("created", _FLOAT, nullable=False),
    )
    op.create_index(op.f("ix_webhooks_owner_id"), "webhooks", ["owner_id"])
    op.create_table(
        "deliveries",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("webhook_id", sa.String(40), sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("run_id", sa.String(40), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("available", _FLOAT, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("ended", _FLOAT),
        sa.Column("answer", sa.Integer),
        sa.Column("problem", sa.Text, nullable=False),
        sa.UniqueConstraint("webhook_id", "subject"),
    )
    op.create_index(op.f("ix_deliveries_state_available"), "deliveries", ["state", "available"])
