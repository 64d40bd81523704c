"""S32: hostile code in an MCP server, of root's agent and of an ordinary user's, gets nothing and is in the log.

Each attack is one that works: without its guards, or with its limit raised, it succeeds.
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

from mcp_attacks import SERVER_ATTACKS
from sandbox_attacks import Attack

pytest.importorskip("yaml")
TESTS = Path(__file__).parents[1]
USERS = ("root", "nobody") if os.geteuid() == 0 else ("",)
Told = dict[tuple[str, str], dict[str, Any]]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
    pytest.mark.timeout(600),
]


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
    folder = tempfile.mkdtemp(prefix="world-")
    try:
        os.chmod(folder, 0o755)
        if user == "nobody":
            os.chown(folder, 65534, 65534)
        return _tried_in(folder, user)
    finally:
        shutil.rmtree(folder)


def _tried_in(folder: str, user: str) -> Told:
    command = [sys.executable, str(TESTS / "mcp_attack_world.py"), folder]
    if user:
        command = [sys.executable, str(TESTS / "as_user.py"), user, *command[1:]]
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["attack"], line["variant"]): line for line in lines}


@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("user", USERS)
def test_an_attack_gets_nothing_and_works_without_its_guard(
    told_by: Callable[[str], Told], user: str, attack: Attack
) -> None:
    if attack.root_only and user != "root":
        pytest.skip("there is something to get only where the agent is root's")
    held, bare = (told_by(user)[attack.name, variant] for variant in ("held", "bare"))
    assert not held["got"], held["said"]
    assert bare["got"], bare["said"]
    told = next(line for line in held["lines"] if "of MCP server 'it'" in line)
    if attack.ended_by:
        assert f"ended by its {attack.ended_by} limit" in told
    if attack.refused:
        assert f"was refused {attack.refused}" in told


def test_there_are_enough_of_them() -> None:
    assert len(SERVER_ATTACKS) >= 40
    assert len({attack.name for attack in SERVER_ATTACKS}) == len(SERVER_ATTACKS)
