"""`make test-trainers`: build the virtual environment of one outside trainer, `.lanes/NAME`, and run its tests there.

    python scripts/trainer_lane.py trl                  build it if needed, run tests/trainers/trl
    python scripts/trainer_lane.py trl --build          build it only
    python scripts/trainer_lane.py trl -- -k tools      further words for pytest

`tests/trainers/NAME/requirements.txt` says what goes in. Its comment lines may hold `python: 3.12` for the oldest
Python that will do, `extras: data,train` for the extras of benchmax that its tests use, `benchmax: no` for a lane
without it, and `beside: NAME` for another lane that its tests start something in.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "trainers"
NEWEST = 13
"""The newest minor version of Python 3 that benchmax takes."""


class LaneError(Exception):
    """The lane cannot be built; the message says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("pytest", nargs="*", help="further words for pytest, after --")
    asked = parser.parse_args()
    try:
        python = build(asked.name)
    except LaneError as error:
        print(error, file=sys.stderr)
        return 2
    if not list((TESTS / asked.name).glob("test_*.py")):
        print(f".lanes/{asked.name} is built. It has no tests of its own: those of another lane use it.")
        return 0
    return 0 if asked.build else test(asked.name, python, asked.pytest)


def build(name: str) -> Path:
    """The interpreter of the lane, which is made anew when what goes in has changed."""
    wanted = TESTS / name / "requirements.txt"
    if not wanted.is_file():
        known = ", ".join(sorted(each.parent.name for each in wanted.parent.parent.glob("*/requirements.txt")))
        raise LaneError(f"There is no lane {name!r}. There are: {known}.")
    text = wanted.read_text("utf-8")
    if beside := _setting(text, "beside"):
        build(beside)
    lane = ROOT / ".lanes" / name
    python, stamp = lane / "bin" / "python", lane / ".stamp"
    recipe = hashlib.sha256((text + (ROOT / "pyproject.toml").read_text("utf-8")).encode()).hexdigest()
    if python.exists() and stamp.is_file() and stamp.read_text("utf-8") == recipe:
        return python
    if not python.exists():
        print(f"Making .lanes/{name}: some gigabytes, some minutes, only once.", file=sys.stderr)
        subprocess.run([interpreter(_setting(text, "python") or "3.11"), "-m", "venv", lane], check=True)
    extras = _setting(text, "extras")
    package = ["--editable", f"{ROOT}[{extras}]" if extras else str(ROOT)]
    ours = [] if _setting(text, "benchmax") == "no" else package
    pip = [python, "-m", "pip", "install", "--quiet", *ours, "--requirement", wanted]
    if subprocess.run(pip).returncode:
        raise LaneError(f"The lane {name!r} could not be installed; pip says why above.")
    stamp.write_text(recipe, "utf-8")
    return python


def interpreter(oldest: str) -> str:
    """A Python of at least this version: this one, or one on the PATH or of pyenv."""
    least = int(oldest.partition(".")[2])
    if sys.version_info.minor >= least:
        return sys.executable
    for minor in range(least, NEWEST + 1):
        found = shutil.which(f"python3.{minor}")
        if found and not subprocess.run([found, "-c", ""], capture_output=True).returncode:  # a shim may lead nowhere
            return found
        for own in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")):
            return str(own)
    raise LaneError(f"This lane needs Python {oldest} or newer. Install it, so that python{oldest} is on the PATH.")


def test(name: str, python: Path, words: list[str]) -> int:
    options = ["-o", "filterwarnings=", "-p", "no:cacheprovider", "--timeout", "900"]
    command = [python, "-m", "pytest", f"tests/trainers/{name}", *options, *words]
    quiet = {"TRL_EXPERIMENTAL_SILENCE": "1", "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **quiet}).returncode


def _setting(text: str, name: str) -> str:
    found = re.search(rf"^#.*\b{name}: (\S+)", text, re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    sys.exit(main())
