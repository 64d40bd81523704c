"""Runs commands of benchmax, each in a process of its own that was forked from one which has imported the command line.

Most of what a short command takes is its imports; here they are paid once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = """
import gc, json, os, sys
import benchmax.platform.client, httpx2, rich.progress  # as most commands do
from benchmax.cli import main
from benchmax.cli.app import app  # all commands

gc.freeze()

def command(asked):
    os.chdir(asked["cwd"])
    sys.path[0] = ""
    os.environ.update(asked["variables"])
    for path, descriptor in (("/dev/null", 0), (asked["out"], 1), (asked["err"], 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), descriptor)
    sys.argv = ["benchmax", *asked["words"]]
    main()

for line in sys.stdin:
    pid = os.fork()
    if not pid:
        command(json.loads(line))
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class ForkedCommands:
    """Commands in processes of their own; `variables` are there from the start, as a terminal's width must be."""

    def __init__(self, python: str | Path = sys.executable, variables: Mapping[str, str] | None = None) -> None:
        self._command = [str(python), "-c", SERVER]
        self._variables = dict(os.environ if variables is None else variables)

    def __enter__(self) -> ForkedCommands:
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, env=self._variables)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=60)

    def run(self, words: Sequence[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Exit code, stdout and stderr of one command."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            asked = {"words": words, "cwd": str(cwd), "variables": variables, "out": str(out), "err": str(err)}
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(list(words), code, out.read_text(), err.read_text())
