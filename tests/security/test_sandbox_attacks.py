"""S32: hostile code in a sandbox, root's and an ordinary user's, gets nothing, is ended in time, and is in the log.

Each attack is one that works: without its guards it succeeds. And each of its guards stops it alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_attacks import ATTACKS, Attack
from sandbox_world import variants

TESTS = Path(__file__).parents[1]
USERS = ("root", "nobody") if os.geteuid() == 0 else ("",)
GRACE_SECONDS = 3.0
Told = dict[tuple[str, str], dict[str, Any]]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.fixture(scope="module")
def told_by() -> Callable[[str], Told]:
    """What came of all attacks, by the user they were tried as; they are tried once."""
    known: dict[str, Told] = {}

    def told(user: str) -> Told:
        if user not in known:
            known[user] = _try_all(user)
        return known[user]

    return told


def _try_all(user: str) -> Told:
    folder = tempfile.mkdtemp(prefix="benchmax-world-")
    try:
        os.chmod(folder, 0o755)
        if user == "nobody":
            os.chown(folder, 65534, 65534)
        return _tried_in(folder, user)
    finally:
        shutil.rmtree(folder)


def _tried_in(folder: str, user: str) -> Told:
    command = [sys.executable, str(TESTS / "sandbox_world.py"), folder]
    if user:
        command = [sys.executable, str(TESTS / "as_user.py"), user, *command[1:]]
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["attack"], line["variant"]): line for line in lines}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("user", USERS)
def test_an_attack_gets_nothing_and_each_guard_stops_it(
    told_by: Callable[[str], Told], user: str, attack: Attack
) -> None:
    if attack.root_only and user != "root":
        pytest.skip("there is something to get only where the sandbox is root's")
    told = {variant: told_by(user)[attack.name, variant] for variant, *_ in variants(attack, user == "root")}
    for variant, came in told.items():
        assert came["tried"], f"{variant}: {came['said']}"
        assert came["got"] == (variant == "bare"), f"{variant}: {came['said']}"
    _is_ended_and_told(attack, told["held"])


def _is_ended_and_told(attack: Attack, held: dict[str, Any]) -> None:
    assert held["seconds"] < attack.limits.get("wall_seconds", 15.0) + GRACE_SECONDS
    assert held["ended_by"] == attack.ended_by
    [line] = held["lines"]
    if attack.ended_by:
        assert f"ended by its {attack.ended_by} limit" in line
    if attack.refused:
        assert f"was refused {attack.refused}" in line


def test_there_are_enough_of_them() -> None:
    assert len(ATTACKS) >= 40
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
