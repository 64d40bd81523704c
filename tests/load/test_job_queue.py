"""Many short jobs, two supervisors, four slots: each runs exactly once, in order, and never too many at a time."""

import sys
import threading
import time

import pytest

from benchmax.platform.runner.jobs.leases import Leases
from benchmax.platform.runner.processes.run_process import RunProcess
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from runner_world import launch, wait_until

# Waits for its word and for the gate, notes that it ran, and ends; few imports, for there are many of them.
CHILD = """
import os, sys, time
run, fd = sys.argv[1], int(sys.argv[3])
os.read(fd, 65536)
while not os.path.exists(os.path.join(os.path.dirname(__file__), "gate")):
    time.sleep(0.01)
with open(os.path.join(run, "ran"), "a") as file:
    file.write("x")
with open(os.path.join(run, "exit.json"), "w") as file:
    file.write('{"pid": %d, "code": 0, "reason": "done"}' % os.getpid())
"""


class Counted(Leases):
    """Notes every lease, and how many are held at once."""

    def __init__(self, database, shared):
        super().__init__(database)
        self.shared = shared

    def take(self, slots, fewest=0):
        with self.shared["lock"]:
            job = super().take(slots, fewest)
            if job is not None:
                self.shared["order"].append((job.priority, job.id))
            return job


def work(supervisor, shared):
    while not shared["done"]:
        supervisor.tick()
        with shared["lock"]:
            shared["most"] = max(shared["most"], sum(len(each.watched) for each in shared["all"]))
            assert len(supervisor.watched) <= 2
        time.sleep(0.01)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_each_job_runs_exactly_once(store, tmp_path, count):
    database, data = store, DataDir(tmp_path / "data")
    script = tmp_path / "short.py"
    script.write_text(CHILD)

    def start(run_dir, **options):
        return RunProcess.start(run_dir, command=(sys.executable, "-I", "-S", str(script)), **options)

    ids = [launch(database, priority=number % 3) for number in range(count)]
    shared = {"lock": threading.Lock(), "order": [], "most": 0, "done": False}
    shared["all"] = [
        Supervisor(database, data, slots=["cpu:0", "cpu:1"], start=start, leases=Counted(database, shared))
        for _ in range(2)
    ]
    threads = [threading.Thread(target=work, args=(each, shared), daemon=True) for each in shared["all"]]
    for thread in threads:
        thread.start()
    wait_until(lambda: shared["most"] == 4)  # the gate is closed: none has ended, and no more may begin
    (tmp_path / "gate").touch()
    end = time.monotonic() + 5 * count
    while time.monotonic() < end:
        with database.read() as session:
            if jobs.counts(session) == {"runs": {"complete": count}, "jobs": {}}:
                break
        time.sleep(0.1)
    shared["done"] = True
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert jobs.counts(session) == {"runs": {"complete": count}, "jobs": {}}
        assert all(job.attempts == 1 for run_id in ids for job in jobs.of_run(session, run_id))
    assert [(data.run(run_id) / "ran").read_text() for run_id in ids] == ["x"] * count
    assert shared["order"] == sorted(shared["order"], key=lambda each: (-each[0], each[1])), "priority, then age"
    assert shared["most"] == 4
