"""The pages about trainers, as the lanes read them: what they install, and what the doctor says there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BENCHMAX = (sys.executable, "-c", "from benchmax.cli import main; main()")
"""The command, with the Python of the lane."""


def page(name: str) -> str:
    return (ROOT / "docs" / "trainers" / f"{name}.md").read_text("utf-8")


def commands(name: str) -> list[str]:
    """The lines of a page's blocks for the shell."""
    blocks = re.findall(r"^ *```(?:bash)?\n(.*?)^ *```$", page(name), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def check_install(line: str, lane: str) -> None:
    """A line of `pip install` asks for this checkout, with extras that the lane has, and for what is installed here."""
    own, *wanted = shlex.split(line, comments=True)[2:]
    recipe = (ROOT / "tests" / "trainers" / lane / "requirements.txt").read_text("utf-8")
    there = re.search(r"^# extras: (\S+)", recipe, re.MULTILINE)
    asked = re.fullmatch(r"\.(?:\[([\w,]+)\])?", own)
    assert asked, f"{line} does not install this checkout"
    assert set((asked[1] or "").split(",")) - {""} <= set(there[1].split(",") if there else ())
    for each in map(Requirement, wanted):
        assert each.specifier.contains(version(each.name)), f"{each} is not what is tested here"


def check_page(name: str, lane: str) -> None:
    """What the page installs is what is tested, and its `benchmax doctor --trainers` finds it in order."""
    (install,) = (line for line in commands(name) if line.startswith("pip install"))
    check_install(install, lane)
    (doctor,) = (line for line in commands(name) if line.startswith("benchmax doctor"))
    done = subprocess.run([*BENCHMAX, *doctor.split()[1:]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"{name}: {version(lane)}: " in done.stderr, done.stderr
