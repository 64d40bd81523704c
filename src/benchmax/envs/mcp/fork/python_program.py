"""Which commands run Python, so that their packages can be imported once for all servers."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmax.envs.mcp.fork.preload import split_command


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python program to fork, and how its packages are imported."""

    kind: str
    target: str
    arguments: tuple[str, ...] = ()
    own: str = "/"
    """An empty directory to import in; the working directory is `own`/workspace."""
    varying: tuple[str, ...] = ("HOME", "TMPDIR", "PWD")
    """Variables that differ between rollouts."""
    also: tuple[str, ...] = ()
    """Files whose imports are preloaded too."""
    interpreter: str = sys.executable


def python_program(command: str, args: Sequence[str], path: str) -> PythonProgram | None:
    """The program of a command that runs Python; None when it does not."""
    found = shutil.which(command, path=path)
    if found is None:
        return None
    if re.fullmatch(r"python[0-9.]*", os.path.basename(command)):
        parts = split_command(args)
        return None if parts is None else PythonProgram(parts[0], parts[1], tuple(parts[2]), interpreter=found)
    words = shebang(found)  # of an installed script, such as `mcp-server-time`
    if len(words) == 1 and os.path.basename(words[0]).startswith("python") and os.path.isfile(words[0]):
        return PythonProgram("script", found, tuple(args), interpreter=words[0])
    return None


def shebang(path: str) -> list[str]:
    """The interpreter and its arguments in the first line of a script; empty when it has none."""
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
