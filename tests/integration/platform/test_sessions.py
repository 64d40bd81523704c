"""The runner's rules for sessions: adopted, ended, never too many, never in the way of training."""

import os
import shutil
import signal
import sys

import pytest

from benchmax.platform.runner.live import live_sessions as runner_sessions
from benchmax.platform.runner.processes.run_process import RunProcess
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.queue import live_sessions
from runner_world import HERE, is_running, open_world, wait_until


def ask(data, **more):
    asked = {"kind": "chat", "owner_id": "usr_x", "run_id": None, "files": {}, "idle_seconds": 600, **more}
    return live_sessions.create(data, asked)


def start_sitter(folder, **options):
    """A child that says it is ready and sits, as a session does."""
    return RunProcess.start(
        folder, command=(sys.executable, "-P", str(HERE / "stub_session.py")), **options | {"module": ""}
    )


@pytest.fixture
def world(tmp_path):
    database, data = open_world(tmp_path)
    yield database, data
    for folder in live_sessions.every(data):
        shutil.rmtree(folder.path, ignore_errors=True)
    database.close()


def bossed(database, data):
    return Supervisor(database, data, slots=["cpu:0"], start=start_sitter)


def drive(boss, condition):
    def tick():
        boss._renewed = -10
        boss.tick()

    return wait_until(condition, tick=tick)


def test_another_runner_adopts_and_a_lost_one_is_told(world):
    database, data = world
    one, two = ask(data), ask(data)
    first = bossed(database, data)
    drive(first, lambda: one.status == two.status == "ready")
    pids = [each.note("process")["pid"] for each in (one, two)]
    children = [first.sessions.open[each.id].process for each in (one, two)]
    for child in children:
        child.release()  # as the kernel does when a runner dies
    os.kill(pids[1], signal.SIGKILL)
    children[1]._popen.wait()
    second = bossed(database, data)
    drive(second, lambda: two.status == "ended")
    assert "lost" in two.reason
    assert one.status == "ready"
    assert is_running(pids[0])
    one.ask_to_end("You ended it.")
    drive(second, lambda: not second.sessions.open)
    assert not is_running(pids[0])
    assert one.note("ended")["reason"] == "You ended it."
    children[0]._popen.wait()


def test_a_session_that_cannot_be_looked_after_does_not_keep_others_from_ending(world, monkeypatch):
    database, data = world
    boss = bossed(database, data)
    one, two = ask(data), ask(data)
    drive(boss, lambda: one.status == two.status == "ready")

    def fail():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(boss.sessions.open[one.id].process, "record_family", fail)
    monkeypatch.setattr(boss.sessions, "_is_gone", lambda run_id: True)
    for each in (one, two):
        boss.sessions.open[each.id].folder.asked["run_id"] = "run_gone"
    boss.sessions.look_around()
    drive(boss, lambda: one.status == two.status == "ended")
    assert one.reason == two.reason == "Its run was deleted."


def test_no_more_than_four_at_once_and_idle_ones_make_room(world, monkeypatch):
    database, data = world
    monkeypatch.setattr(runner_sessions, "IDLE_SECONDS", 600.0)  # no chat is left, however long the test takes
    boss = bossed(database, data)
    opened = [ask(data, kind="rollout" if n == 2 else "chat") for n in range(runner_sessions.MOST_OPEN)]
    drive(boss, lambda: all(each.status == "ready" for each in opened))
    opened[2].write("activity", {"busy": 1, "since": 0})
    late = ask(data)
    drive(boss, lambda: "waiting for a place" in late.reason)
    models = [ask(data, kind="model") for _ in range(runner_sessions.MOST_MODELS)]
    drive(boss, lambda: all(each.status == "ready" for each in models))  # those who play may wait for one
    assert "waiting for a place" in late.reason
    for each in models:
        each.ask_to_end("You ended it.")
    opened[2].write("activity", {"busy": 0, "since": 0})
    drive(boss, lambda: late.status == "ready")
    assert "another needed its place" in opened[2].reason
    assert [each.status for each in opened] == ["ready", "ready", "ended", "ready"]
    assert not boss.watched, "no slot of training was used"
    boss.stop()
    drive(boss, lambda: not boss.sessions.open)
    assert {each.reason for each in (opened[0], late)} == {"The platform was stopped."}
    monkeypatch.setattr(runner_sessions, "KEPT_SECONDS", -1.0)
    boss.sessions.look_around()
    assert live_sessions.every(data) == []
