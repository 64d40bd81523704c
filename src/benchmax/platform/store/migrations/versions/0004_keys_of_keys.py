"""Keys of keys: which key made a key, approved a device, asked for an upload"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("api_keys") as batch:
        batch.add_column(sa.Column("parent_id", sa.String(length=40), nullable=True))
    with op.batch_alter_table("device_codes") as batch:
        batch.add_column(sa.Column("key_id", sa.String(length=40), nullable=True))
    with op.batch_alter_table("uploads") as batch:
        batch.add_column(sa.Column("key_id", sa.String(length=40), nullable=True))
