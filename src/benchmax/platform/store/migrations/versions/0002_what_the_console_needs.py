"""What the console needs: notes on runs, rows of datasets, errands (doctor reports, exports), users who left"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("runs") as batch:
        batch.add_column(sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch.add_column(sa.Column("notes", sa.Text(), nullable=False, server_default=""))
        batch.add_column(sa.Column("asked", sa.JSON(), nullable=False, server_default="{}"))
        batch.add_column(sa.Column("parent", sa.JSON(), nullable=False, server_default="{}"))
    with op.batch_alter_table("blobs") as batch:
        batch.add_column(sa.Column("rows", sa.Integer(), nullable=True))
    with op.batch_alter_table("users") as batch:
        batch.add_column(sa.Column("deleted", sa.Float(precision=53), nullable=True))
    with op.batch_alter_table("device_codes") as batch:
        batch.add_column(sa.Column("address", sa.String(length=80), nullable=False, server_default=""))
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("run_id", existing_type=sa.String(length=40), nullable=True)
    op.create_table(
        "errands",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("run_id", sa.String(length=40), nullable=True),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("created", sa.Float(precision=53), nullable=False),
        sa.Column("ended", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_errands_owner_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_errands_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_errands")),
    )
    with op.batch_alter_table("errands") as batch:
        batch.create_index(batch.f("ix_errands_owner_id_kind_subject"), ["owner_id", "kind", "subject"], unique=False)
        batch.create_index(batch.f("ix_errands_run_id"), ["run_id"], unique=False)
