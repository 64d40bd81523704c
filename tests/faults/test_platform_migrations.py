"""Upgrades keep every row (F22), and one that is killed in the middle has not happened (F3)."""

import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from benchmax.platform.store import database, schema_version
from benchmax.platform.store.datadir import DataDir
from platform_world import fresh_database

PAST = [each.revision for each in ScriptDirectory(str(schema_version.MIGRATIONS)).walk_revisions()][1:]

# An upgrade that dies by kill -9 after the last of its statements, before anything was committed.
KILLED = """
import os, signal, sys
import alembic.command
from benchmax.platform.store import database, schema_version
real = alembic.command.upgrade
def upgrade(config, revision):
    real(config, revision)
    os.kill(os.getpid(), signal.SIGKILL)
alembic.command.upgrade = upgrade
schema_version.upgrade(database.make_engine(sys.argv[1]))
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        return fresh_database(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{DataDir(tmp_path / 'data').create().database}"


def at_revision(url, revision):
    """A database with the tables of an older benchmax, and a row in every one of them."""
    engine = database.make_engine(url)
    with engine.begin() as connection:
        command.upgrade(schema_version.alembic_config(connection), revision)
    found = sa.MetaData()
    with engine.begin() as connection:
        found.reflect(connection)
        rows = {}
        for table in found.sorted_tables:
            if table.name != "alembic_version" and not table.name.startswith("chunks_fts"):
                rows[table.name] = {column.name: value_for(column, rows) for column in table.columns}
                connection.execute(table.insert(), rows[table.name])
    return engine


def value_for(column, rows):
    for key in column.foreign_keys:
        return rows[key.column.table.name][key.column.name]
    if isinstance(column.type, sa.JSON):
        return {}
    if isinstance(column.type, sa.Boolean):
        return False
    if isinstance(column.type, sa.Integer | sa.Float):
        return 7
    return b"secret" if isinstance(column.type, sa.LargeBinary) else f"{column.name}-7"[:8]


def contents(engine):
    """Everything in every table, by column."""
    found = sa.MetaData()
    with engine.connect() as connection:
        found.reflect(connection)
        tables = [each for each in found.sorted_tables if not each.name.startswith(("chunks_fts", "alembic"))]
        return {table.name: [dict(row._mapping) for row in connection.execute(table.select())] for table in tables}


def check_kept(before, after):
    for name, rows in before.items():
        assert len(after[name]) == len(rows) == 1, name
        assert rows[0].items() <= after[name][0].items(), name


FROM = [pytest.param(each, marks=[] if each in (PAST[0], PAST[-1]) else pytest.mark.slow, id=each) for each in PAST]
"""From the first all changes are made, and the last has all tables."""


@pytest.mark.parametrize("revision", FROM)
def test_an_upgrade_keeps_every_row(url, revision):
    engine = at_revision(url, revision)
    before = contents(engine)
    assert len(before) > 15
    schema_version.upgrade(engine)
    check_kept(before, contents(engine))
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1, "on again"
    engine.dispose()


@pytest.mark.parametrize("revision", PAST[:1])
def test_an_upgrade_killed_in_the_middle_has_not_happened(url, revision):
    engine = at_revision(url, revision)
    before = contents(engine)
    ended = subprocess.run([sys.executable, "-c", KILLED, url], capture_output=True, timeout=110)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert contents(engine) == before
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == revision
    schema_version.upgrade(engine)
    check_kept(before, contents(engine))
    engine.dispose()


def test_ids_of_one_off_jobs_move_to_their_own_column(url):
    engine = database.make_engine(url)
    with engine.begin() as connection:
        command.upgrade(schema_version.alembic_config(connection), "0007")
    jobs = sa.Table("jobs", sa.MetaData(), autoload_with=engine)
    kinds = {"train": None, "eval": "evl_1", "rescore": "evl_2", "doctor": "erd_1", "export": "erd_2"}
    common = dict.fromkeys(("priority", "slots", "created", "available", "attempts", "max_attempts"), 0)
    with engine.begin() as connection:
        for kind, id in kinds.items():
            connection.execute(jobs.insert().values(kind=kind, eval_id=id, state="queued", **common))
    schema_version.upgrade(engine)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT kind, eval_id, one_off_id FROM jobs")).all()
    moved = {(kind, None, id) if kind in ("doctor", "export") else (kind, id, None) for kind, id in kinds.items()}
    assert {tuple(row) for row in rows} == moved
    engine.dispose()
