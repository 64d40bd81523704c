"""One-off jobs have a column of their own: their ids were in that of evals"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_ONE_OFF_KINDS = ("doctor", "export")


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("one_off_id", sa.String(length=40), nullable=True))
    jobs = sa.table("jobs", sa.column("kind"), sa.column("eval_id"), sa.column("one_off_id"))
    moved = sa.update(jobs).where(jobs.c.kind.in_(_ONE_OFF_KINDS))
    op.execute(moved.values(one_off_id=jobs.c.eval_id, eval_id=None))
