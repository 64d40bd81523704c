"""The supervisor with stub children: a run's way from the queue to its end, whatever happens on it."""

import os
import stat
import time

import pytest
from cryptography.fernet import Fernet
from sqlalchemy.exc import OperationalError

from benchmax.bundle import BundleMetadata, envs_venv
from benchmax.bundle.venv import COMPLETE, venv_name
from benchmax.platform.runner import supervisor
from benchmax.platform.runner.jobs import train_job, venv_cleanup
from benchmax.platform.runner.jobs.leases import Slots
from benchmax.platform.runner.processes import machine_usage
from benchmax.platform.runner.processes import run_process as processes
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.accounts import users
from benchmax.platform.store.queue import jobs, one_off_jobs
from benchmax.platform.store.runs import events, rollouts, runs
from benchmax.platform.store.tables import Job, OneOffJob, Run, Upload
from benchmax.platform.store.uploads import blobs
from benchmax.platform.store.uploads.blobs import BlobStore
from platform_world import make_run
from runner_world import (
    active,
    drive,
    end_all,
    ended,
    get,
    is_running,
    launch,
    open_world,
    start_stub,
    starts,
    steps,
    wait_until,
)


@pytest.fixture
def world(tmp_path):
    database, data = open_world(tmp_path)
    yield database, data
    database.close()


@pytest.fixture
def boss(world, monkeypatch):
    monkeypatch.setattr(supervisor, "HEARTBEAT_SECONDS", 0.2)
    database, data = world
    made = Supervisor(database, data, slots=["cpu:0"], start=start_stub)
    yield made
    end_all(made)


def kinds(database, run_id):
    with database.read() as session:
        return [event.kind for event in events.of_run(session, run_id)]


def test_a_run_from_the_queue_to_its_end(world, boss, monkeypatch):
    database, data = world
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("CASTFORM_API_KEY", "sk-secret")
    run_id = launch(database, steps=4)
    with database.write() as session:
        boss._vault.put(session, get(database, run_id).owner_id, "JUDGE_KEY", "for the run", run_id=run_id)
    drive(boss, ended(database, run_id))
    run = get(database, run_id)
    assert (run.status, run.reason) == ("complete", "All steps are done.")
    assert (run.latest_step, run.total_steps) == (3, 4)
    assert run.started is not None
    assert steps(database, run_id) == [0, 1, 2, 3]
    with database.read() as session:
        page = rollouts.page(session, run_id, split="train")
        assert len(page) == 8
        assert rollouts.read_body(data.run(run_id), page[0])["id"] == page[0].id
        assert len(rollouts.logs(session, run_id)) == 8
    seen = kinds(database, run_id)
    assert seen[0] == "training.pending"
    assert seen[-1] == "training.complete"
    assert seen.count("trainer.checkpoint") == 2
    (start,) = starts(data, run_id)
    alone = {"several_users": False, "closed_ports": [], "platform": ""}
    machine = {"venvs": str(data.venvs), "sandbox": alone}
    assert start["word"] == {"variables": {"JUDGE_KEY": "for the run"}, **machine}
    assert start["cwd"] == str(data.run(run_id))
    assert "secret" not in str(start["variables"]), "the runner's own keys stay with it"
    assert stat.S_IMODE((data.run(run_id) / "child.log").stat().st_mode) == 0o600
    assert boss.slots.free == 1
    assert not list(data.run(run_id).glob(".adopt-*"))


@pytest.mark.parametrize("deaf", [False, True])
def test_cancel_ends_the_whole_family(world, boss, monkeypatch, deaf):
    database, data = world
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    run_id = launch(database, steps=1000, pause=0.1, family=True, deaf=deaf)
    drive(boss, active(database, run_id))
    boss._renewed = -10
    boss.tick()
    with database.write() as session:
        runs.request_cancel(session, run_id)
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "cancelled"
    (start,) = starts(data, run_id)
    family = int((data.run(run_id) / "family").read_text())
    assert not is_running(start["pid"])
    assert not is_running(family)
    assert steps(database, run_id) == list(range(len(steps(database, run_id)))), "what was done is kept"


def test_cancel_before_the_start(world, boss):
    database, data = world
    first, second = launch(database, steps=1000, pause=0.1), launch(database, steps=2)
    drive(boss, lambda: "1 before it" not in get(database, second).activity and starts(data, first))
    assert get(database, second).status == "pending"
    assert "slot" in get(database, second).reason
    with database.write() as session:
        runs.request_cancel(session, second)
        runs.request_cancel(session, first)
    drive(boss, ended(database, first, second))
    assert {get(database, each).status for each in (first, second)} == {"cancelled"}
    assert starts(data, second) == []
    late = launch(database, steps=2)
    with database.write() as session:
        runs.request_cancel(session, late)
    boss._start_next()
    assert get(database, late).status == "cancelled"
    assert starts(data, late) == []


def test_an_evaluation_that_waits_outlives_the_cancelling_of_its_run(world, boss):
    database, _ = world
    run_id = launch(database)
    with database.write() as session:
        jobs.enqueue(session, run_id, kind="eval", eval_id="evl_1")
        runs.request_cancel(session, run_id)
    boss._look_around()
    assert get(database, run_id).status == "cancelled"
    with database.read() as session:
        assert {job.kind: job.state for job in jobs.of_run(session, run_id)} == {"train": "done", "eval": "queued"}


def test_a_crash_is_resumed_from_the_checkpoint(world, boss):
    database, data = world
    run_id = launch(database, steps=7, every=2, crash_at=4)
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "complete"
    first, second = starts(data, run_id)
    assert first["pid"] != second["pid"]
    assert steps(database, run_id) == list(range(7)), "no gap, no double"
    with database.read() as session:
        page = rollouts.page(session, run_id, split="train", limit=100)
        assert len(page) == 14
        owners = {row.step: row.id.split("-")[0] for row in page}
        assert owners[4] == f"r{second['pid']}", "the step was done again, and its old rollouts are gone"
        assert owners[3] == f"r{first['pid']}"
        assert len(rollouts.logs(session, run_id)) == 14
        reasons = [event.message for event in events.of_run(session, run_id) if event.kind == "training.pending"]
    assert any("killed by SIGKILL; attempt 2 of 5" in reason for reason in reasons)


def test_too_many_crashes_fail_with_the_last_lines(world, boss, monkeypatch):
    database, data = world
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE", 0.0)
    run_id = launch(database, steps=9, every=10, always_crash=True, max_attempts=2)
    drive(boss, ended(database, run_id))
    run = get(database, run_id)
    assert run.status == "failed"
    assert "attempt 2 of 2" in run.reason
    assert "about to die" in run.reason
    assert len(starts(data, run_id)) == 2
    with database.read() as session:
        assert [job.state for job in jobs.of_run(session, run_id)] == ["done"]


@pytest.mark.parametrize(("code", "words"), [(2, "Row 3 is bad."), (28, "No space left on /x.")])
def test_a_mistake_is_not_tried_again(world, boss, code, words):
    database, data = world
    run_id = launch(database, code=code, reason=words)
    drive(boss, ended(database, run_id))
    assert (get(database, run_id).status, get(database, run_id).reason) == ("failed", words)
    assert len(starts(data, run_id)) == 1


def test_after_a_full_disk_the_run_can_be_resumed(world, boss):
    database, _data = world
    run_id = launch(database, code=28, reason="No space left on /x.")
    drive(boss, ended(database, run_id))
    with database.write() as session:
        assert runs.reopen(session, run_id)
        session.get(Run, run_id).args = {"steps": 2}
        jobs.enqueue(session, run_id)
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "complete"
    assert steps(database, run_id) == [0, 1]


def test_a_child_that_hangs_is_stalled(world, boss, monkeypatch):
    database, _data = world
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)
    run_id = launch(database, steps=9, hang_at=3, max_attempts=1)
    drive(boss, lambda: steps(database, run_id) == [0, 1, 2])
    monkeypatch.setattr(supervisor, "STALL_SECONDS", 0.7)  # only now: a slow child is none that hangs
    drive(boss, ended(database, run_id))
    run = get(database, run_id)
    assert run.status == "stalled"
    assert "no progress" in run.reason
    assert steps(database, run_id) == [0, 1, 2]


def test_a_run_that_cannot_start_says_why(world, boss):
    database, _data = world
    run_id = launch(database)
    with database.write() as session:
        session.get(Run, run_id).blobs = {"env_cls_path": "0" * 64}
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "failed"
    assert "no longer stored" in get(database, run_id).reason


def test_deleted_runs_go_with_their_files(world, boss):
    database, data = world
    run_id = launch(database, steps=1000, pause=0.1)
    drive(boss, active(database, run_id))
    (start,) = starts(data, run_id)
    with database.write() as session:
        runs.mark_deleted(session, run_id)

    def removed():
        with database.read() as session:
            return session.get(Run, run_id) is None

    drive(boss, removed)
    assert not data.run(run_id).exists()
    assert not is_running(start["pid"])


def test_a_run_nobody_will_ever_run_is_failed(world, boss):
    database, _data = world
    run_id = launch(database)
    with database.write() as session:
        session.get(Run, run_id).updated -= 100
        for job in jobs.of_run(session, run_id):
            session.delete(session.merge(job))
    boss._look_around()
    assert get(database, run_id).status == "failed"


def test_jobs_that_were_leased_and_never_begun_go_back(world, boss, monkeypatch):
    database, _data = world
    run_id = launch(database, steps=2)
    with monkeypatch.context() as broken:
        broken.setattr(train_job, "prepare", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            boss.tick()
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "complete"


def test_a_job_whose_secrets_cannot_be_read_for_a_moment_keeps_no_slot(world, boss, monkeypatch):
    database, _data = world
    run_id = launch(database, steps=2)
    with monkeypatch.context() as broken:
        broken.setattr(train_job.TrainJob, "reader", lambda _: (_ for _ in ()).throw(OperationalError("", {}, None)))
        boss.tick()
    assert boss.slots.free == 1
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "complete"


def test_a_child_whose_runner_says_nothing_never_begins(world, boss):
    database, data = world
    run_id = launch(database)
    train_job.prepare(data, get(database, run_id))
    process = start_stub(data.run(run_id))
    process.release()
    wait_until(lambda: not process.poll())
    assert process.code == 0
    assert starts(data, run_id) == []


def test_a_lost_lease_leaves_the_child_to_its_new_holder(world, boss):
    database, data = world
    run_id = launch(database, steps=1000, pause=0.1)
    drive(boss, active(database, run_id))
    other = Supervisor(database, data, slots=["cpu:0"], start=start_stub)
    ((job_id, watched),) = boss.watched.items()
    with database.write() as session:
        assert jobs.take_over(session, job_id, boss.leases.holder.id, other.leases.holder)
        job = session.get(Job, job_id)
    other._take_over(other._open_job(job))
    boss._look_around()
    assert boss.watched == {}
    assert boss.slots.free == 1
    with database.write() as session:
        runs.request_cancel(session, run_id)
    drive(other, ended(database, run_id))
    assert len(starts(data, run_id)) == 1
    wait_until(lambda: not watched.process.poll())


def test_slots_never_given_twice():
    slots = Slots(["cuda:0", "cuda:1", "cuda:2"])
    assert slots.take(1, ["cuda:1"]) == ["cuda:1"]
    assert slots.take(2) == ["cuda:0", "cuda:2"]
    assert slots.free == 0
    slots.give(["cuda:1"])
    slots.give(["cuda:1"])
    assert slots.take(5) == ["cuda:1"]
    assert machine_usage.gpu_ids(["cuda:0", "cpu:1", "cuda:2"]) == ["0", "2"]


def test_the_supervisor_leaves_no_file_open(world, boss):
    database, _data = world
    drive(boss, ended(database, launch(database, steps=1)))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        drive(boss, ended(database, launch(database, steps=1)))
    assert len(os.listdir("/proc/self/fd")) < before + 5, "the database may open one more connection, of three files"


def test_a_one_off_job_whose_secrets_cannot_be_read_fails_alone(world, boss):
    database, data = world
    with database.write() as session:
        owner = users.ensure_user(session, "a@example.org")
        boss._vault.put(session, owner.id, "JUDGE_KEY", "of the owner")
        asked = one_off_jobs.start(session, owner.id, "doctor", "math", options={"spec": "math"})
    data.secret_key.write_bytes(Fernet.generate_key())
    later = Supervisor(database, data, slots=["cpu:0"], start=start_stub)
    later.tick()
    with database.read() as session:
        seen = session.get(OneOffJob, asked.id)
    assert seen.status == "failed"
    assert "JUDGE_KEY" in seen.reason
    assert later.watched == {}


def test_packages_no_environment_needs_any_more_are_removed(world):
    database, data = world
    store = BlobStore(data.blobs)
    metadata = {name: BundleMetadata([name]) for name in ("uploaded", "of-a-run", "gone", "used")}
    homes = {name: data.venvs / venv_name(each) for name, each in metadata.items()}
    sha256 = {}
    for name, home in homes.items():
        home.mkdir(parents=True)
        (home / COMPLETE).touch()
        (home / "library").touch()
        os.utime(home / COMPLETE, (time.time() - 31 * 86_400,) * 2)
        with store.receive() as incoming:
            incoming.write(metadata[name].to_json_bytes())
            sha256[name] = incoming.keep()
    (data.venvs / "being-made").mkdir()
    with database.write() as session:
        owner = make_run(session, blobs={"env_metadata_path": sha256["of-a-run"]}).owner_id
        make_run(session, blobs={"env_metadata_path": sha256["gone"]}).deleted = time.time()
        upload = Upload(owner_id=owner, path="envs/a/env-metadata.json", mime_type="application/json")
        blobs.name_blob(session, upload, sha256["uploaded"], 1)
    assert envs_venv(metadata["used"], data.venvs).parent.parent == homes["used"]
    venv_cleanup.sweep(database, data)
    assert {name for name, home in homes.items() if home.exists()} == {"uploaded", "of-a-run", "used"}
    assert (data.venvs / "being-made").exists()
    os.utime(homes["used"] / COMPLETE, (time.time() - 31 * 86_400,) * 2)
    venv_cleanup.sweep(database, data)
    assert not homes["used"].exists()
