"""What the console needs: notes on runs, rows of datasets, errands (doctor reports, exports), users who left"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_FLOAT = sa.Float(precision=53)


def upgrade() -> None:
    with op.batch_alter_table("runs") as batch:
        batch.add_column(sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch.add_column(sa.Column("notes", sa.Text(), nullable=False, server_default=""))
        batch.add_column(sa.Column("asked", sa.JSON(), nullable=False, server_default="{}"))
        batch.add_column(sa.Column("parent", sa.JSON(), nullable=False, server_default="{}"))
    with op.batch_alter_table("blobs") as batch:
        batch.add_column(sa.Column("rows", sa.Integer(), nullable=True))
    with op.batch_alter_table("users") as batch:
        batch.add_column(sa.Column("deleted", _FLOAT, nullable=True))
    with op.batch_alter_table("device_codes") as batch:
        batch.add_column(sa.Column("address", sa.String(length=80), nullable=False, server_default=""))
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("run_id", existing_type=sa.String(length=40), nullable=True)
    op.create_table(
        "errands",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE")),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("result", sa.JSON, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("ended", _FLOAT),
    )
    op.create_index(op.f("ix_errands_owner_id_kind_subject"), "errands", ["owner_id", "kind", "subject"])
    op.create_index(op.f("ix_errands_run_id"), "errands", ["run_id"])
