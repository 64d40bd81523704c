"""What the runner's tests stand on: stub children, runs to give them, and ways to wait for what must happen."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmax.platform.runner.processes.run_process import RunProcess
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import runs
from platform_world import make_run, metric_values, open_new

HERE = Path(__file__).parent
STUB = HERE / "stub_child.py"


def start_stub(run_dir, **options):
    return RunProcess.start(run_dir, command=(sys.executable, "-P", str(STUB)), **options)


def open_world(folder, url=None):
    data = DataDir(folder / "data").create()
    return open_new(data, url), data


def launch(database, priority=0, slots=1, max_attempts=5, **args):
    with database.write() as session:
        run = make_run(session, args=args)
        job = jobs.enqueue(session, run.id, slots=slots)
        job.priority, job.max_attempts = priority, max_attempts
    return run.id


def get(database, run_id):
    with database.read() as session:
        return runs.get(session, run_id)


def wait_until(condition, seconds=60.0, tick=lambda: time.sleep(0.05)):
    """Until the condition holds; fails with what it last was."""
    end = time.monotonic() + seconds
    while not (seen := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {seen!r}"
        tick()
    return seen


def drive(supervisor, condition, seconds=60.0):
    """Let the supervisor work until the condition holds."""

    def tick():
        supervisor.tick()
        time.sleep(0.02)

    return wait_until(condition, seconds, tick)


def end_all(supervisor):
    """Kill what it still watches, and see it gone."""
    for watched in supervisor.watched.values():
        watched.process.kill()
        wait_until(lambda watched=watched: not watched.process.poll())


def ended(database, *run_ids):
    return lambda: all(get(database, each).ended is not None for each in run_ids)


def active(database, *run_ids):
    return lambda: all(get(database, each).status == "active" and get(database, each).latest_step for each in run_ids)


def starts(data, run_id):
    """What each child that began said of itself; a line that is being written is none yet."""
    path = data.run(run_id) / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def steps(database, run_id, mode="train", name="loss"):
    with database.read() as session:
        return [point["step"] for point in metric_values(session, run_id, mode).get(name, [])]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def runner(data, policy="adopt", url=None):
    """A runner in a process of its own."""
    log = open(data.logs / "runner.log", "ab")  # noqa: SIM115
    with log:
        command = [sys.executable, str(HERE / "stub_runner.py"), str(data.root), policy, *([url] if url else [])]
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(HERE)})
