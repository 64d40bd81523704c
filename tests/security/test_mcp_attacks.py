"""S32: hostile code in an MCP server, of root's agent and of an ordinary user's, gets nothing and is in the log.

Each attack is one that works: without its guards, or with its limit raised, it succeeds.
"""

from __future__ import annotations

import sys

import pytest

from attack_runs import USERS, told_by
from mcp_attacks import SERVER_ATTACKS
from sandbox_attacks import Attack

pytest.importorskip("yaml")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("attack", SERVER_ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("user", USERS)
def test_an_attack_gets_nothing_and_works_without_its_guard(user: str, attack: Attack) -> None:
    if attack.root_only and user != "root":
        pytest.skip("there is something to get only where the agent is root's")
    held, bare = (told_by("mcp_attack_world.py", user)[attack.name, variant] for variant in ("held", "bare"))
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
