"""The runner of a killed daemon still saves: the next daemon waits for it, and `up` means that all is up."""

import json
import signal
import subprocess
import sys
import time

import pytest

from benchmax.errors import UsageError
from benchmax.net import ports
from benchmax.platform.daemon import control, liveness
from benchmax.platform.daemon.options import Options
from benchmax.platform.runner.processes import process_ids
from benchmax.platform.store.datadir import DataDir
from runner_world import wait_until

pytestmark = pytest.mark.timeout(300)

SAVING = """
import signal, sys, time
from benchmax.platform.store.datadir import DataDir
data = DataDir(sys.argv[1]).create()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with data.lock("runner"):
    print("held", flush=True)
    until = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        data.runner_beat.touch()
        time.sleep(0.1)
"""


@pytest.fixture
def data(tmp_path):
    made = DataDir(tmp_path / "data").create()
    yield made
    control.stop(made)


def saving(data, seconds):
    """A runner of before that needs so long to save."""
    process = subprocess.Popen([sys.executable, "-c", SAVING, data.root, str(seconds)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


@pytest.mark.slow
def test_up_returns_when_the_new_runner_has_its_place(data):
    before = saving(data, 8)
    try:
        url = control.start(Options(data, ports.free_port()))
        assert data.holder("runner") not in (None, before.pid), "it said it was up while the old runner held the place"
        assert before.wait(30) == 0, "the old runner had its time"
    finally:
        before.kill()
        before.wait()
        before.stdout.close()
    note = liveness.read_daemon(data)
    assert liveness.platform_url(data, note) == url
    assert data.holder("runner") == note["runner"]["pid"]
    time.sleep(2 * liveness.LOOK_SECONDS)
    assert liveness.read_daemon(data)["pid"] == note["pid"], "the daemon gave up"


STUCK = """
import signal, sys, time
from benchmax.platform.store.datadir import DataDir
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with DataDir(sys.argv[1]).create().lock("server"):
    print("held", flush=True)
    if sys.argv[2] == "stopped":
        signal.raise_signal(signal.SIGSTOP)
    else:
        time.sleep(300)
"""


@pytest.mark.parametrize("how", ["stopped", "hung"])
def test_up_does_not_wait_for_a_server_that_will_not_end(data, how, monkeypatch):
    monkeypatch.setattr(control, "WAIT_SECONDS", 60.0 if how == "stopped" else 0.5)
    before = subprocess.Popen([sys.executable, "-c", STUCK, data.root, how], stdout=subprocess.PIPE)
    try:
        assert before.stdout.readline() == b"held\n"
        if how == "stopped":
            wait_until(lambda: process_ids.stopped(before.pid))
        control._wait_for_server(data)
        assert before.wait(60) == (0 if how == "stopped" else -signal.SIGKILL)
        assert data.holder("server") is None
    finally:
        before.kill()
        before.wait()
        before.stdout.close()


def test_down_ends_what_a_killed_daemon_left(data):
    before = saving(data, 300)
    try:
        control.STOP_SECONDS, kept = 0.0, control.STOP_SECONDS
        assert control.stop(data)
        assert before.wait(60) < 0
    finally:
        control.STOP_SECONDS = kept
        before.kill()
        before.wait()
        before.stdout.close()
    assert not control.stop(data)


def test_a_place_is_waited_for_no_longer_than_told(data):
    before = saving(data, 300)
    try:
        began = time.monotonic()
        with pytest.raises(UsageError, match="already runs"), data.lock("runner", wait=0.3):
            pass
        assert 0.3 <= time.monotonic() - began < 30
    finally:
        before.kill()
        before.wait()
        before.stdout.close()
    with data.lock("runner", wait=60):
        pass


def test_a_daemon_of_an_earlier_version_is_found_and_stopped(data):
    old = subprocess.Popen(["sleep", "300"])
    try:
        written = {**liveness.identity(old.pid), "port": 4321, "database_url": None, "server": {}, "runner": {}}
        (data.root / "keeper.json").write_text(json.dumps(written))
        assert liveness.read_daemon(data) == written
        assert control.status(data)["running"]
        assert control.stop(data)
        assert old.wait(60) == -signal.SIGTERM
    finally:
        old.kill()
        old.wait()
    assert liveness.read_daemon(data) is None
