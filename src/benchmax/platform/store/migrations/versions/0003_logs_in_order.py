"""Logs in order: the pages of a run's log without sorting all of it"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_index(op.f("ix_env_logs_run_id_id"), "env_logs", ["run_id", "id"])
