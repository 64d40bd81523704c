"""What a run sends away without a variable, a session or a parent to know it by ends with the run all the same."""

import itertools
import os
import signal
import subprocess
import sys

import psutil
import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.platform.runner import supervisor
from benchmax.platform.runner.processes import parent_watch
from benchmax.platform.runner.processes.run_process import RunProcess
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.sdk.rollout_client import RolloutClient
from benchmax.platform.store.accounts import users
from benchmax.platform.store.queue import live_sessions
from benchmax.platform.store.runs import runs
from benchmax.sandbox.inside import call_tags
from benchmax.trainer.tiny_model import make_tiny
from runner_world import active, drive, ended, get, is_running, open_world, wait_until
from session_world import bundled, fake_model, store_run, supervised

pytestmark = pytest.mark.timeout(300)  # real trainers, on machines that do other things too

GONE_SECONDS = 60
NUMBERS = itertools.count()
ARGS = {
    "learning_rate": 1e-2, "tune": "full", "group_size": 4, "max_new_tokens": 4, "max_turns": 1, "eval_every": 1000,
}  # fmt: skip


class Daemoniser(BaseEnv):
    """Starts, once, a process that nothing in /proc ties to the run."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import os
        import subprocess

        try:
            os.close(os.open("once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            lowered = ["prlimit", "--rss=0", "--locks=0"]  # what it would otherwise be known by
            subprocess.run(["env", "-i", "setsid", "--fork", *lowered, "sleep", task["naptime"]], check=True)
        text = messages[-1]["content"]
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


def rows(naptime):
    return [{"prompt": f"{number}?", "naptime": naptime} for number in range(16)]


def strays(naptime):
    """The processes that sleep so long: in a sandbox they neither write elsewhere nor know their number outside."""
    return [each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", naptime]]


def assert_unknown(pid):
    """The test's own premise: neither variables nor parent nor session tell where it came from."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        assert b"BENCHMAX" not in file.read()
    assert os.getsid(pid) == pid
    assert is_running(pid)


@pytest.fixture
def naptime():
    """Seconds that no other process sleeps."""
    seconds = f"1000.{os.getpid()}{next(NUMBERS)}"
    yield seconds
    for pid in strays(seconds):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=1)


class World:
    """What `store_run` needs of a server, without one."""

    def __init__(self, folder):
        self.database, self.data = open_world(folder)

    def launch(self, naptime, model, steps):
        with self.database.write() as session:
            owner = users.ensure_user(session, "me@example.org", "member").id
        args = ARGS | {"model": str(model), "max_steps": steps, "num_epochs": steps}
        return store_run(self, owner, Daemoniser, rows(naptime), queued=True, **args)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "HEARTBEAT_SECONDS", 0.5)
    made = World(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def boss(world):
    made = Supervisor(world.database, world.data, slots=["cpu:0"])
    yield made
    for watched in made.watched.values():
        watched.process.kill()
        wait_until(lambda watched=watched: not watched.process.poll())


@pytest.mark.slow
def test_when_the_run_is_complete(world, boss, naptime, model):
    run_id = world.launch(naptime, model, steps=1)
    drive(boss, lambda: strays(naptime), 120)
    (stray,) = strays(naptime)
    drive(boss, ended(world.database, run_id), 120)
    assert get(world.database, run_id).status == "complete", get(world.database, run_id).reason
    wait_until(lambda: not is_running(stray), GONE_SECONDS)


@pytest.mark.slow
def test_when_the_run_is_cancelled(world, boss, naptime, model):
    run_id = world.launch(naptime, model, steps=5000)
    drive(boss, active(world.database, run_id), 120)
    (stray,) = wait_until(lambda: strays(naptime))
    assert_unknown(stray)
    with world.database.write() as session:
        runs.request_cancel(session, run_id)
    drive(boss, ended(world.database, run_id), 60)
    assert get(world.database, run_id).status == "cancelled"
    wait_until(lambda: not is_running(stray), GONE_SECONDS)


@pytest.fixture
def runner(world):
    """Starts real runners, as the daemon does."""
    started = []

    def begin():
        command = [sys.executable, "-m", "benchmax.platform.runner", "--data", str(world.data.root)]
        with open(world.data.logs / "runner.log", "ab") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return started[-1]

    yield begin
    for each in started:
        if each.poll() is None:
            each.terminate()
            each.wait(60)


@pytest.mark.parametrize(
    "child_too",
    [pytest.param(False, id="the runner", marks=pytest.mark.slow), pytest.param(True, id="runner and child")],
)
def test_when_killed_and_back(world, runner, naptime, model, child_too):
    first = runner()
    run_id = world.launch(naptime, model, steps=5000)
    wait_until(active(world.database, run_id), 120)
    (stray,) = wait_until(lambda: strays(naptime))
    assert_unknown(stray)
    first.kill()
    first.wait()
    if child_too:
        os.kill(_child(world), signal.SIGKILL)
        runner()
        wait_until(lambda: not is_running(stray), GONE_SECONDS)
        return
    runner()
    wait_until(lambda: "adopted process" in (world.data.logs / "runner.log").read_text())
    assert is_running(stray), "the run goes on"
    with world.database.write() as session:
        runs.request_cancel(session, run_id)
    wait_until(ended(world.database, run_id), 60)
    wait_until(lambda: not is_running(stray), GONE_SECONDS)


def _child(world):
    from benchmax.platform.store.tables import Job

    with world.database.read() as session:
        return session.query(Job).one().child_pid


def test_when_a_session_ends(tmp_path, naptime):
    with supervised(tmp_path) as live, fake_model("1") as model:
        _, key = live.user()
        with RolloutClient(key, live.url) as client:
            event = client.stream_rollout(
                rows(naptime)[0], **bundled(Daemoniser), llm_base_url=model.base_url, llm_model="m"
            )
        assert event["success"], event
        (stray,) = wait_until(lambda: strays(naptime))
        assert_unknown(stray)
        (folder,) = live_sessions.every(live.data)
        folder.ask_to_end("You ended it.")
        wait_until(lambda: folder.status == "ended")
        wait_until(lambda: not is_running(stray), GONE_SECONDS)


# Without trainers

SENDS_AWAY = """
import signal, subprocess, sys, time
from pathlib import Path
from benchmax.sandbox.inside import kernel, call_tags
from benchmax.platform.runner.processes import parent_watch
parent_watch.wait_for_message(int(sys.argv[3]))
parent_watch.ADOPT_SECONDS = 0.1
parent_watch.watch_parent(int(sys.argv[3]), Path(sys.argv[1]), sys.argv[5])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
call_tags.tag(4711)
subprocess.run(["env", "-i", "setsid", "--fork", "sleep", NAPTIME], check=True)
time.sleep(600)
"""


@pytest.fixture
def sent_away(tmp_path, naptime):
    """A child that marked what it started as an MCP agent does, and what it sent away."""
    process = RunProcess.start(tmp_path, command=(sys.executable, "-c", f"NAPTIME = {naptime!r}{SENDS_AWAY}"))
    process.begin({})
    (stray,) = wait_until(lambda: strays(naptime))
    yield process, stray
    process.kill()
    wait_until(lambda: not process.poll())


def test_tags_of_a_run_and_of_an_mcp_agent_do_not_disturb_one_another(sent_away):
    process, stray = sent_away
    assert_unknown(stray)
    assert call_tags.tag_of(stray) == 4711
    # `setsid` itself, which sent it away, may end a moment later.
    wait_until(lambda: {each.pid for each in process.remains()} == {process.pid, stray})


def test_another_runs_processes_are_not_taken_for_ones_own(sent_away, tmp_path):
    _, stray = sent_away
    (tmp_path / "other").mkdir()
    other = RunProcess.start(tmp_path / "other", command=("sleep", "600"))
    other.kill()
    wait_until(lambda: not other.poll())
    assert other.remains() == []
    assert is_running(stray)


MAKES_ONE = """
import os, signal
from benchmax.files.temp_dirs import make_owned_dir
folder = make_owned_dir("benchmax-env-")
os.mkfifo(folder / "made")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folders_of_a_child_that_was_killed_are_removed(tmp_path, monkeypatch):
    """Nobody of the run is left to do it: whoever guards its environment is killed with it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    process = RunProcess.start(tmp_path, command=(sys.executable, "-c", MAKES_ONE))
    wait_until(lambda: not process.poll())
    assert process.code == -signal.SIGKILL
    assert list((tmp_path / "tmp").iterdir()) == []


def test_when_no_runner_comes_back(sent_away):
    process, stray = sent_away
    process.release()  # as the kernel does when a runner dies
    wait_until(lambda: not is_running(stray), parent_watch.END_SECONDS + GONE_SECONDS)


def test_a_limit_in_force_that_may_not_be_raised_leaves_the_variable(tmp_path):
    """A platform started under `ulimit -m` without root still runs, and still knows what keeps its variables."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    code = f"""
import resource, sys, time
from pathlib import Path
from benchmax.sandbox.inside import kernel, call_tags
from benchmax.platform.runner.processes.run_process import RunProcess
kernel.drop_capabilities()  # root may raise it
resource.setrlimit(resource.RLIMIT_RSS, (1 << 40, 1 << 40))
process = RunProcess.start(Path({str(tmp_path)!r}), command=(sys.executable, "-c", {script!r}))
end = time.monotonic() + 60
while process.poll() and time.monotonic() < end: time.sleep(0.05)
while process.remains() and time.monotonic() < end: process.kill()
print(resource.getrlimit(resource.RLIMIT_RSS)[1] == 1 << 40, "left", len(process.remains()))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert said.stdout == "True left 0\n", said.stderr
