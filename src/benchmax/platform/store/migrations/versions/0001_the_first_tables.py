"""The first tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FLOAT = sa.Float(precision=53)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("time", _FLOAT, nullable=False),
        sa.Column("user_id", sa.String(40)),
        sa.Column("actor", sa.String(100), nullable=False),
        sa.Column("action", sa.String(60), nullable=False),
        sa.Column("target", sa.String(200), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
    )
    op.create_index(op.f("ix_audit_user_id_id"), "audit", ["user_id", "id"])
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("size", _BIG, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
    )
    op.create_table(
        "login_failures",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("account", sa.String(320), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("time", _FLOAT, nullable=False),
    )
    op.create_index(op.f("ix_login_failures_account_address_time"), "login_failures", ["account", "address", "time"])
    op.create_table(
        "users",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("email", sa.String(320), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("password_hash", sa.Text),
        sa.Column("created", _FLOAT, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("user_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("prefix", sa.String(8), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("expires", _FLOAT),
        sa.Column("last_used", _FLOAT),
        sa.Column("revoked", _FLOAT),
    )
    op.create_index(op.f("ix_api_keys_user_id"), "api_keys", ["user_id"])
    op.create_table(
        "blob_paths",
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("path", sa.String(500), primary_key=True),
        sa.Column("sha256", sa.String(64), sa.ForeignKey("blobs.sha256"), nullable=False),
        sa.Column("mime_type", sa.String(100), nullable=False),
        sa.Column("updated", _FLOAT, nullable=False),
    )
    op.create_table(
        "corpora",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.UniqueConstraint("owner_id", "name"),
    )
    op.create_table(
        "device_codes",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("user_code", sa.String(16), nullable=False, unique=True),
        sa.Column("client_id", sa.String(100), nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("expires", _FLOAT, nullable=False),
        sa.Column("polled", _FLOAT, nullable=False),
        sa.Column("user_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE")),
        sa.Column("denied", sa.Boolean, nullable=False),
    )
    op.create_table(
        "login_links",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("user_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("expires", _FLOAT, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("activity", sa.Text, nullable=False),
        sa.Column("args", sa.JSON, nullable=False),
        sa.Column("paths", sa.JSON, nullable=False),
        sa.Column("blobs", sa.JSON, nullable=False),
        sa.Column("total_steps", sa.Integer),
        sa.Column("latest_step", sa.Integer),
        sa.Column("error_count", sa.Integer, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("updated", _FLOAT, nullable=False),
        sa.Column("started", _FLOAT),
        sa.Column("ended", _FLOAT),
        sa.Column("cancel_requested", _FLOAT),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("archived", sa.Boolean, nullable=False),
        sa.Column("deleted", _FLOAT),
        sa.Column("tags", sa.JSON, nullable=False),
    )
    op.create_index(op.f("ix_runs_owner_id_created"), "runs", ["owner_id", "created"])
    op.create_table(
        "secrets",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("run_id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.UniqueConstraint("owner_id", "run_id", "name"),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("user_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("last_seen", _FLOAT, nullable=False),
        sa.Column("expires", _FLOAT, nullable=False),
    )
    op.create_index(op.f("ix_sessions_user_id"), "sessions", ["user_id"])
    op.create_table(
        "uploads",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("path", sa.String(500), nullable=False),
        sa.Column("mime_type", sa.String(100), nullable=False),
        sa.Column("expires", _FLOAT, nullable=False),
        sa.Column("used", sa.Boolean, nullable=False),
    )
    op.create_table(
        "chunks",
        sa.Column("n", _BIG, primary_key=True),
        sa.Column("corpus_id", sa.String(40), sa.ForeignKey("corpora.id", ondelete="CASCADE"), nullable=False),
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.UniqueConstraint("corpus_id", "id"),
    )
    op.create_table(
        "endpoints",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("base_url", sa.Text, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("secret_id", sa.String(40), sa.ForeignKey("secrets.id", ondelete="SET NULL")),
        sa.Column("created", _FLOAT, nullable=False),
        sa.UniqueConstraint("owner_id", "name"),
    )
    op.create_table(
        "env_logs",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("rollout_id", sa.String(80)),
        sa.Column("step", sa.Integer),
        sa.Column("time", _FLOAT, nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text),
    )
    op.create_index(op.f("ix_env_logs_run_id_rollout_id"), "env_logs", ["run_id", "rollout_id"])
    op.create_table(
        "evals",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("summary", sa.JSON, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("ended", _FLOAT),
    )
    op.create_index(op.f("ix_evals_run_id"), "evals", ["run_id"])
    op.create_table(
        "events",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("time", _FLOAT, nullable=False),
        sa.Column("category", sa.String(20), nullable=False),
        sa.Column("kind", sa.String(80), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_run_id_id"), "events", ["run_id", "id"])
    op.create_table(
        "ingest_cursors",
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("file", sa.String(200), primary_key=True),
        sa.Column("offset", _BIG, nullable=False),
        sa.Column("inode", _BIG, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("eval_id", sa.String(40)),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("created", _FLOAT, nullable=False),
        sa.Column("available", _FLOAT, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(80)),
        sa.Column("holder_pid", sa.Integer),
        sa.Column("holder_started", _FLOAT),
        sa.Column("lease_until", _FLOAT),
        sa.Column("child_pid", sa.Integer),
        sa.Column("child_started", _FLOAT),
    )
    op.create_index(op.f("ix_jobs_run_id"), "jobs", ["run_id"])
    op.create_index(op.f("ix_jobs_state_priority_id"), "jobs", ["state", "priority", "id"])
    op.create_table(
        "rollouts",
        sa.Column("n", _BIG, primary_key=True),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("mode", sa.String(40), nullable=False),
        sa.Column("eval_id", sa.String(40), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("example_id", sa.String(80), nullable=False),
        sa.Column("prompt_text", sa.Text, nullable=False),
        sa.Column("sample", sa.Integer, nullable=False),
        sa.Column("reward", _FLOAT),
        sa.Column("components", sa.JSON, nullable=False),
        sa.Column("termination", sa.String(40), nullable=False),
        sa.Column("error_type", sa.String(100)),
        sa.Column("ok", sa.Boolean, nullable=False),
        sa.Column("discarded", sa.Text),
        sa.Column("advantage", _FLOAT),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("tools", sa.JSON, nullable=False),
        sa.Column("started_at", _FLOAT, nullable=False),
        sa.Column("seconds", _FLOAT, nullable=False),
        sa.Column("file", sa.String(200), nullable=False),
        sa.Column("offset", _BIG, nullable=False),
        sa.Column("length", _BIG, nullable=False),
        sa.UniqueConstraint("run_id", "id"),
    )
    op.create_index("ix_rollouts_chart", "rollouts", ["run_id", "mode", "eval_id", "example_id", "step", "reward"])
    op.create_index("ix_rollouts_step", "rollouts", ["run_id", "mode", "eval_id", "step"])
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("mode", sa.String(40), nullable=False),
        sa.Column("name", sa.String(300), nullable=False),
        sa.UniqueConstraint("run_id", "mode", "name"),
    )
    op.create_table(
        "points",
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("series_id", sa.Integer, sa.ForeignKey("series.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("value", _FLOAT, nullable=False),
        sa.Column("time", _FLOAT, nullable=False),
        sqlite_with_rowid=False,
    )
    _index_chunks()


def _index_chunks() -> None:
    """Full-text search, in each database's own way."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE INDEX chunks_fts ON chunks USING gin (to_tsvector('simple', content))")
        return
    added = "INSERT INTO chunks_fts(rowid, content) VALUES (new.n, new.content);"
    gone = "INSERT INTO chunks_fts(chunks_fts, rowid, content) VALUES ('delete', old.n, old.content);"
    op.execute("CREATE VIRTUAL TABLE chunks_fts USING fts5(content, content='chunks', content_rowid='n')")
    op.execute(f"CREATE TRIGGER chunks_fts_added AFTER INSERT ON chunks BEGIN {added} END")
    op.execute(f"CREATE TRIGGER chunks_fts_gone AFTER DELETE ON chunks BEGIN {gone} END")
    op.execute(f"CREATE TRIGGER chunks_fts_changed AFTER UPDATE OF content ON chunks BEGIN {gone} {added} END")
