"""kill -9 of the runner, of its children, of both: every run goes on, nothing twice, nobody left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from cryptography.fernet import Fernet

from benchmax.platform.runner.children.child_files import PROCESS_FILE, read_child_file
from benchmax.platform.runner.jobs import leases as lease_rules
from benchmax.platform.runner.jobs.leases import Leases, this_process
from benchmax.platform.runner.processes import process_ids
from benchmax.platform.runner.processes.run_process import RunProcess
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import rollouts, runs
from runner_world import (
    active,
    drive,
    ended,
    get,
    is_running,
    launch,
    open_world,
    runner,
    start_stub,
    starts,
    steps,
    wait_until,
)

pytestmark = pytest.mark.timeout(300)  # runners and children are started again and again


@pytest.fixture
def world(tmp_path):
    database, data = open_world(tmp_path)
    yield database, data
    database.close()


@pytest.fixture
def start(world):
    """Starts runners; ends them, and what they started, after the test."""
    _database, data = world
    started = []

    def begin(policy="adopt"):
        started.append(runner(data, policy))
        return started[-1]

    yield begin
    for each in started:
        if each.poll() is None:
            each.terminate()
            try:
                each.wait(60)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
    for pid in all_pids(data):
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def all_pids(data):
    return [start["pid"] for folder in data.runs.iterdir() for start in starts(data, folder.name)]


def check_whole(database, run_id, count):
    assert get(database, run_id).status == "complete", get(database, run_id).reason
    assert steps(database, run_id) == list(range(count))
    with database.read() as session:
        assert len(rollouts.page(session, run_id, split="train", limit=10_000)) == 2 * count
        assert len(rollouts.logs(session, run_id)) == 2 * count


def test_a_new_runner_adopts_the_children_of_a_killed_one_or_cancels_them(world, start):
    database, data = world
    first = start()
    unwanted = launch(database, steps=5000, pause=0.05, adopt_seconds=90)
    wait_until(active(database, unwanted))
    goes_on = launch(database, steps=40, pause=0.1, every=5, adopt_seconds=90)  # last, for it ends by itself
    wait_until(active(database, goes_on))
    first.kill()
    first.wait()
    pids = [starts(data, each)[0]["pid"] for each in (goes_on, unwanted)]
    assert all(map(is_running, pids))
    with database.write() as session:
        runs.request_cancel(session, unwanted)
    start()
    wait_until(ended(database, goes_on, unwanted))
    check_whole(database, goes_on, 40)
    assert get(database, unwanted).status == "cancelled"
    assert [len(starts(data, each)) for each in (goes_on, unwanted)] == [1, 1], "never a second copy"
    wait_until(lambda: not any(map(is_running, pids)))


def test_children_end_with_their_runner_when_told_to(world, start):
    database, data = world
    first = start("stop")
    run_id = launch(database, steps=20, pause=0.25, every=5, family=True)
    wait_until(active(database, run_id))
    wait_until(lambda: "family" in read_child_file(data.run(run_id) / PROCESS_FILE))
    first.kill()
    first.wait()
    (child,) = starts(data, run_id)
    wait_until(lambda: not is_running(child["pid"]))
    start("stop")
    wait_until(ended(database, run_id))
    check_whole(database, run_id, 20)
    assert len(starts(data, run_id)) == 2
    family = int((data.run(run_id) / "family").read_text())
    wait_until(lambda: not is_running(family))


def test_nobody_left_when_no_runner_comes_back(world, start):
    database, data = world
    first = start()
    run_id = launch(database, steps=1000, pause=0.05, every=5, adopt_seconds=3)
    wait_until(active(database, run_id))
    first.kill()
    first.wait()
    (child,) = starts(data, run_id)
    assert is_running(child["pid"])
    wait_until(lambda: not is_running(child["pid"]))


@pytest.mark.slow
def test_any_order_under_work(world, start):
    """Kill a child, the runner, both at once; the counts are exact in the end."""
    database, data = world
    current = start()
    ids = [launch(database, steps=40, pause=0.05, every=2) for _ in range(3)]
    for turn in range(4):
        wait_until(lambda: any(map(is_running, all_pids(data))) or ended(database, *ids)())
        time.sleep(0.4)
        alive = [pid for pid in all_pids(data) if is_running(pid)]
        if turn != 1 and alive:
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                os.kill(alive[0], signal.SIGKILL)
        if turn:
            current.kill()
            current.wait()
            current = start()
    wait_until(ended(database, *ids), 120)
    for run_id in ids:
        check_whole(database, run_id, 40)
    wait_until(lambda: not any(map(is_running, all_pids(data))))


def test_a_runner_that_is_told_to_stop_saves_its_runs(world, start):
    database, data = world
    first = start()
    run_id = launch(database, steps=40, pause=0.1, every=50)
    wait_until(active(database, run_id))
    first.terminate()
    assert first.wait(60) == 0
    run = get(database, run_id)
    assert run.status == "pending"
    assert "goes on when it starts again" in run.reason
    assert not any(map(is_running, all_pids(data)))
    with database.read() as session:
        assert [(job.state, job.attempts) for job in jobs.of_run(session, run_id)] == [("queued", 0)]
    done = len(steps(database, run_id))
    start()
    wait_until(ended(database, run_id))
    check_whole(database, run_id, 40)
    assert 0 < done < 40


def test_two_runners_do_not_share_a_data_directory(world, start):
    _database, data = world
    start()
    wait_until(lambda: (data.locks / "runner.lock").exists() and (data.locks / "runner.lock").read_text())
    second = start()
    assert second.wait(60) != 0
    assert "already runs" in (data.logs / "runner.log").read_text()


def test_the_clock_may_jump(world, monkeypatch):
    """An hour forward or back: nobody loses a lease that is alive, and the run ends once."""
    database, data = world
    boss = Supervisor(database, data, slots=["cpu:0"], start=start_stub)
    run_id = launch(database, steps=12, pause=0.2)
    drive(boss, active(database, run_id))
    other = Leases(database, this_process())
    real = time.time
    for jump in (3600, -3600):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        assert other.take_abandoned() == []
        boss._look_around()
        assert boss.watched
    monkeypatch.setattr(time, "time", real)
    drive(boss, ended(database, run_id))
    check_whole(database, run_id, 12)
    assert len(starts(data, run_id)) == 1


def test_a_lease_of_another_machine_is_taken_only_after_a_wide_margin(world):
    database, _data = world
    run_id = launch(database)
    away = jobs.Holder("elsewhere/1234", 1, 1.0)
    with database.write() as session:
        jobs.lease(session, away, slots=1)
    mine = Leases(database)
    assert mine.take_abandoned() == []
    with database.write() as session:
        (job,) = jobs.of_run(session, run_id)
        job.lease_until = time.time() - lease_rules.MARGIN_SECONDS - 1
    assert [job.run_id for job in mine.take_abandoned()] == [run_id]


def test_what_a_run_sent_into_the_background_ends_with_it(tmp_path):
    """It was gone from the family before anybody looked: another session, and its parent has ended."""
    script = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"
    process = RunProcess.start(tmp_path, command=(sys.executable, "-c", script))
    wait_until(lambda: not process.poll())
    pid = int((tmp_path / "child.log").read_text())
    wait_until(lambda: not is_running(pid))
    wait_until(lambda: process.remains() == [])


def test_a_pid_used_again_is_not_the_old_process():
    pid = os.getpid()
    assert process_ids.alive(pid, process_ids.started(pid))
    assert not process_ids.alive(pid, process_ids.started(pid) - 1.0)
    assert not process_ids.alive(None, None)
    child = subprocess.Popen(["true"])
    born = process_ids.started(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process_ids.alive(child.pid, born), "a zombie does not run"
    child.wait()


def test_a_run_whose_end_nobody_saw_is_complete(world, start):
    """The child ends while there is no runner: its last note tells the next one."""
    database, data = world
    first = start()
    run_id = launch(database, steps=20, pause=0.15, adopt_seconds=90)
    wait_until(active(database, run_id))
    first.kill()
    first.wait()
    (child,) = starts(data, run_id)
    wait_until(lambda: not is_running(child["pid"]))
    assert get(database, run_id).status == "active"
    start()
    wait_until(ended(database, run_id))
    check_whole(database, run_id, 20)
    assert len(starts(data, run_id)) == 1


def test_a_run_whose_secrets_cannot_be_read_fails_alone(world, start):
    """The key was replaced while no runner was there: one run fails and says why, its runner goes on."""
    database, data = world
    first = start()
    locked, open_one = (launch(database, steps=200, pause=0.1, adopt_seconds=90), launch(database, steps=3))
    with database.write() as session:
        Vault(data).put(session, get(database, locked).owner_id, "JUDGE_KEY", "for the run", run_id=locked)
    wait_until(active(database, locked))
    first.kill()
    first.wait()
    data.secret_key.write_bytes(Fernet.generate_key())
    second = start()
    wait_until(ended(database, locked, open_one))
    run = get(database, locked)
    assert run.status == "failed"
    assert "JUDGE_KEY" in run.reason
    assert "Set it again" in run.reason
    assert not any(map(is_running, all_pids(data)))
    assert get(database, open_one).status == "complete"
    assert second.poll() is None
