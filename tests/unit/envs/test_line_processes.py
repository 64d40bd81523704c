"""Helper processes: what they answer, what ends them, and who may ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.envs.line_processes.client import LineProcesses
from benchmax.errors import RewardError, UsageError

CHILD = """
import os, sys, time
from benchmax.envs.line_processes.child import apart, serve

def load():
    if sys.argv[1:]:
        __import__(sys.argv[1])

def answer(message):
    print("a library that prints")
    work = {"pid": os.getpid, "fail": lambda: 1 / 0, "forget": lambda: bytearray(2**31), "write": write,
            "last": forever, "wait": lambda: time.sleep(60), "half": half, "slowly": slowly}[message["do"]]
    return {"found": work() if message["do"] in ("pid", "half", "slowly") else apart(work, 0.3, 2**30)}

def half():
    os.write(CHANNEL, b'{"found": ')
    os._exit(1)

def slowly():
    time.sleep(1)
    return "late"

def write():
    with open(os.path.join(os.path.dirname(__file__), "written"), "w") as file:
        file.write("x" * 10_000)
    return 1

def forever():
    while True:
        pass

CHANNEL = os.dup(1)
serve(load, answer)
"""
FORKED = """
import os, sys
from pathlib import Path
from benchmax.envs.line_processes.client import LineProcesses
processes = LineProcesses(Path(sys.argv[1]), patience=10, what="It")
first = processes.ask({"do": "pid"})["found"]
if os.fork() == 0:
    other = processes.ask({"do": "pid"})["found"]
    processes.close()
    os._exit(other == first)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, "a fork has processes of its own"
assert processes.ask({"do": "pid"})["found"] == first
processes.close()
"""
INTERRUPTED = """
import signal, sys
from pathlib import Path
from benchmax.envs.line_processes import client
client.MOST_PROCESSES = 1
processes = client.LineProcesses(Path(sys.argv[1]), patience=10, what="It")
first = processes.ask({"do": "pid"})["found"]
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    processes.ask({"do": "slowly"})
except KeyboardInterrupt:
    other = processes.ask({"do": "pid"})["found"]
    assert isinstance(other, int) and other != first, other
else:
    raise AssertionError("it was not interrupted")
processes.close()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "child.py").write_text(CHILD)
    return tmp_path / "child.py"


def test_what_fails_or_lasts_is_nothing_and_the_next_one_is_answered(script: Path) -> None:
    processes = LineProcesses(script, patience=10, what="It")
    first = processes.ask({"do": "pid"})["found"]
    for work in ("fail", "forget", "write", "last", "wait"):
        assert processes.ask({"do": work}) == {"found": None}, work
    assert processes.ask({"do": "pid"})["found"] == first
    processes.close()


def test_a_missing_package_is_said(script: Path) -> None:
    with pytest.raises(UsageError, match=r"It needs a package that is not installed \(not_there\)"):
        LineProcesses(script, ["not_there"], patience=10, what="It").ask({"do": "pid"})


def test_a_fork_asks_processes_of_its_own(script: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, str(script)], check=True, timeout=60)


def test_a_process_that_ends_while_it_answers_is_replaced(script: Path) -> None:
    processes = LineProcesses(script, patience=10, what="It")
    with pytest.raises(RewardError, match="It ended 2 times"):
        processes.ask({"do": "half"})
    assert isinstance(processes.ask({"do": "pid"})["found"], int)
    processes.close()


def test_the_answer_to_an_interrupted_question_is_not_that_to_the_next(script: Path) -> None:
    subprocess.run([sys.executable, "-c", INTERRUPTED, str(script)], check=True, timeout=60)
