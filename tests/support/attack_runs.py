"""Runs a program of attacks as a user, once, and reads what came of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
USERS = ("root", "nobody") if os.geteuid() == 0 else ("",)
IN_FULL = [
    pytest.param(user, marks=[pytest.mark.slow] if user == "nobody" else [], id=user or "this user") for user in USERS
]
"""Users as whom attacks are tried with and without their guards. Those that work for root are known to work."""
Told = dict[tuple[str, str], dict[str, Any]]
"""What came of an attack, by its name and its variant."""


@cache
def told_by(program: str, user: str, variant: str = "") -> Told:
    """What came of all attacks of a program in this folder, tried as this user; of one variant or of all."""
    folder = tempfile.mkdtemp(prefix="world-")
    try:
        os.chmod(folder, 0o755)
        if user == "nobody":
            os.chown(folder, 65534, 65534)
        return _tried_in(folder, program, user, variant)
    finally:
        shutil.rmtree(folder)


def _tried_in(folder: str, program: str, user: str, variant: str) -> Told:
    command = [sys.executable, str(TESTS / program), folder, variant]
    if user:
        command = [sys.executable, str(TESTS / "as_user.py"), user, *command[1:]]
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["attack"], line["variant"]): line for line in lines}
