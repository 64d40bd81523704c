"""S32: hostile code in an MCP server, of root's agent and of an ordinary user's, gets nothing and is in the log.

Each attack is one that works: without its guards, or with its limit raised, it succeeds.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from attack_runs import IN_FULL, USERS, told_by
from mcp_attacks import SERVER_ATTACKS
from sandbox_attacks import Attack

pytest.importorskip("yaml")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("user", IN_FULL)
def test_an_attack_gets_nothing_and_works_without_its_guard(user: str, attack: Attack) -> None:
    _skip_what_is_not_for(user, attack)
    held, bare = (told_by("mcp_attack_world.py", user)[attack.name, variant] for variant in ("held", "bare"))
    _gets_nothing_and_is_told(attack, held)
    assert bare["got"], bare["said"]


@pytest.mark.skipif("nobody" not in USERS, reason="another user can be tried only by root")
@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_gets_nothing_of_an_ordinary_user(attack: Attack) -> None:
    _skip_what_is_not_for("nobody", attack)
    _gets_nothing_and_is_told(attack, told_by("mcp_attack_world.py", "nobody", "held")[attack.name, "held"])


def _skip_what_is_not_for(user: str, attack: Attack) -> None:
    if attack.root_only and user != "root":
        pytest.skip("there is something to get only where the agent is root's")


def _gets_nothing_and_is_told(attack: Attack, held: dict[str, Any]) -> None:
    assert not held["got"], held["said"]
    told = next(line for line in held["lines"] if "of MCP server 'it'" in line)
    if attack.ended_by:
        assert f"ended by its {attack.ended_by} limit" in told
    if attack.refused:
        assert re.search(rf"was refused (.+, )?{attack.refused}\b", told), told


def test_there_are_enough_of_them() -> None:
    assert len(SERVER_ATTACKS) >= 40
    assert len({attack.name for attack in SERVER_ATTACKS}) == len(SERVER_ATTACKS)
