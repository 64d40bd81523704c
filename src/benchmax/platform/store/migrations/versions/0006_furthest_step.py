"""The furthest step of a run: what is shown of its progress does not go backwards when its trainer does"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("runs") as batch:
        batch.add_column(sa.Column("furthest_step", sa.Integer(), nullable=True))
