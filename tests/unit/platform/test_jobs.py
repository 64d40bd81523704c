"""Jobs as classes: every kind is one, and none is asked which it is."""

import importlib
import os

import pytest

from benchmax.platform.runner.supervisor import KINDS, Supervisor
from benchmax.platform.store import tables
from benchmax.platform.store.accounts import users
from benchmax.platform.store.queue import jobs, one_off_jobs
from benchmax.platform.store.runs import evals, runs
from platform_world import make_run
from runner_world import open_world


@pytest.fixture
def world(tmp_path):
    database, data = open_world(tmp_path)
    yield database, data
    database.close()


def test_every_kind_has_a_program_and_a_name():
    assert KINDS.keys() == {"train", "eval", "rescore", "doctor", "export"}
    for kind in KINDS.values():
        assert callable(importlib.import_module(kind.module).main)


def test_each_kind_has_a_folder_and_an_id_of_its_own(world):
    database, data = world
    with database.write() as session:
        run = make_run(session)
        owner = users.ensure_user(session, "a@example.org")
        jobs.enqueue(session, run.id)
        jobs.enqueue(session, run.id, kind="eval", eval_id="evl_1")
        one_off_jobs.start(session, owner.id, "doctor", "math", options={"spec": "math"})
        one_off_jobs.start(session, owner.id, "export", "step-1", run_id=run.id)
    boss = Supervisor(database, data, slots=[])
    with database.read() as session:
        opened = [boss._open_job(row) for row in session.query(tables.Job).order_by(tables.Job.id)]
    train, evaluation, doctor, export = opened
    assert (str(train), train.folder) == (run.id, data.run(run.id))
    assert (str(evaluation), evaluation.folder) == ("evl_1", data.run(run.id) / "evals" / "evl_1")
    for each in (doctor, export):
        assert each.row.eval_id is None
        assert each.folder == data.root / "one_off_jobs" / str(each)
    assert len({each.folder for each in opened}) == 4


def test_reports_of_a_removed_user_go_and_waiting_ones_are_never_begun(world):
    database, data = world
    with database.write() as session:
        user = users.ensure_user(session, "a@example.org")
        made = one_off_jobs.start(session, user.id, "doctor", "math", options={"spec": "math"})
    with database.write() as session:
        users.remove(session, users.by_email(session, "a@example.org"))
    boss = Supervisor(database, data, slots=[])
    with database.read() as session:
        assert session.get(tables.OneOffJob, made.id) is None
        (waits,) = session.query(tables.Job)
        assert boss._open_job(waits).is_cancelled(session)
    with database.write() as session:
        boss._open_job(waits).finish(session, "cancelled", "It was stopped before it began.")


def test_a_job_ends_however_deep_the_folders_are_that_its_environment_left(world, monkeypatch):
    database, data = world
    with database.write() as session:
        run = make_run(session)
        made = one_off_jobs.start(session, run.owner_id, "doctor", "math", options={"spec": "math"})
        runs.mark_deleted(session, run.id)
    boss = Supervisor(database, data, slots=[])
    with database.read() as session:
        job = boss._open_job(session.query(tables.Job).one())
    for folder in (job.folder, data.run(run.id)):
        folder.mkdir(parents=True)
        with monkeypatch.context() as there:
            there.chdir(folder)
            for _ in range(1_500):
                os.mkdir("d")
                os.chdir("d")
    with database.write() as session:
        job.finish(session, "complete", "The examination is done.")
    assert not job.folder.exists()
    boss._look_around()
    assert not data.run(run.id).exists()
    with database.read() as session:
        assert session.get(tables.OneOffJob, made.id).status == "complete"


def test_each_kind_that_is_stopped_while_it_waits_says_so_where_it_is_shown(world):
    database, data = world
    with database.write() as session:
        run = make_run(session)
        jobs.enqueue(session, run.id)
        row = evals.create(session, run_id=run.id, model="base")
        jobs.enqueue(session, run.id, kind="eval", eval_id=row.id)
        made = one_off_jobs.start(session, run.owner_id, "export", "step-1", run_id=run.id)
        runs.mark_deleted(session, run.id)
        dropped = jobs.to_drop(session)
    boss = Supervisor(database, data, slots=[])
    for waits in dropped:
        with database.write() as session:
            assert jobs.drop(session, waits.id)
            assert not jobs.drop(session, waits.id), "once"
            boss._open_job(waits).finish(session, "cancelled", "It was stopped.")
    with database.read() as session:
        assert {job.state for job in jobs.of_run(session, run.id)} == {"done"}
        shown = ((tables.Run, run.id), (tables.Eval, row.id), (tables.OneOffJob, made.id))
        ended = [session.get(table, id) for table, id in shown]
    assert [each.status for each in ended] == ["cancelled", "cancelled", "failed"]
    assert {each.reason for each in ended} == {"It was stopped."}
