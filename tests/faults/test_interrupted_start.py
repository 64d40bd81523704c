"""Ctrl-C while an environment's file hangs: the command ends at once, says nothing wrong, and leaves no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from living import paths_under
from runner_world import is_running, wait_until

HANGS = "import os, time\nopen(os.path.join(os.environ['TMPDIR'], 'here'), 'w').close()\ntime.sleep(600)\n"
ENV = """
from benchmax import BaseEnv

class Stuck(BaseEnv):
    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        {in_a_row}

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {{"x": 1.0}}
"""
FILES = {
    "when imported": HANGS + ENV.format(in_a_row="pass"),
    "in a row": ENV.format(in_a_row="; ".join(HANGS.splitlines())),
}
MOST_SECONDS = 60.0
"""On a busy machine; without care it is 120 s in a sandbox, and for ever outside of one."""


def started(folder: Path, command: str, source: str, *options: str) -> subprocess.Popen[str]:
    """The command, once the environment's file hangs."""
    (folder / "own").mkdir()
    (folder / "temp").mkdir()
    (folder / "own" / "stuck.py").write_text(source)
    (folder / "own" / "rows.jsonl").write_text("".join(json.dumps({"prompt": str(n)}) + "\n" for n in range(40)))
    running = subprocess.Popen(
        [sys.executable, "-m", "benchmax", command, "stuck.py", "--data", "rows.jsonl", *options],
        cwd=folder / "own", env={**os.environ, "TMPDIR": str(folder / "temp")}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not any(path.name == "here" for path in paths_under(folder)):
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.02)
    return running


@pytest.mark.parametrize(
    ("command", "hangs", "options"),
    [
        ("eval", "when imported", ()),
        ("eval", "when imported", ("--sandbox",)),
        ("eval", "in a row", ("--sandbox",)),
        ("train", "when imported", ("--sandbox",)),
        ("train", "in a row", ("--sandbox",)),
    ],
)
def test_ctrl_c_while_the_file_hangs(tmp_path: Path, command: str, hangs: str, options: tuple[str, ...]) -> None:
    running = started(tmp_path, command, FILES[hangs], *options)
    children = psutil.Process(running.pid).children(recursive=True)
    assert bool(children) == bool(options)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=200)[1]
    assert time.monotonic() - began < MOST_SECONDS
    assert running.returncode == 130
    assert "--resume" not in said
    assert "Traceback" not in said
    assert not (tmp_path / "own" / "runs").exists()
    wait_until(lambda: not any(is_running(child.pid) for child in children))
