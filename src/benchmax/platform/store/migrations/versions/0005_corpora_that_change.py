"""Corpora that change: when a corpus last got chunks"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("corpora") as batch:
        batch.add_column(sa.Column("updated", sa.Float(precision=53), nullable=True))
    op.execute(sa.text("UPDATE corpora SET updated = created"))
