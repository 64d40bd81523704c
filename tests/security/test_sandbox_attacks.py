"""S32: hostile code in a sandbox, root's and an ordinary user's, gets nothing, is ended in time, and is in the log.

Each attack is one that works: without its guards it succeeds. And each of its guards stops it alone.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from attack_runs import IN_FULL, USERS, told_by
from sandbox_attacks import ATTACKS, Attack
from sandbox_world import variants

GRACE_SECONDS = 10.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("user", IN_FULL)
def test_an_attack_gets_nothing_and_each_guard_stops_it(user: str, attack: Attack) -> None:
    _skip_what_is_not_for(user, attack)
    all_told = told_by("sandbox_world.py", user)
    told = {variant: all_told[attack.name, variant] for variant, *_ in variants(attack, user == "root")}
    for variant, came in told.items():
        assert came["tried"], f"{variant}: {came['said']}"
        assert came["got"] == (variant == "bare"), f"{variant}: {came['said']}"
    _is_ended_and_told(attack, told["held"])


@pytest.mark.skipif("nobody" not in USERS, reason="another user can be tried only by root")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_gets_nothing_of_an_ordinary_user(attack: Attack) -> None:
    _skip_what_is_not_for("nobody", attack)
    held = told_by("sandbox_world.py", "nobody", "held")[attack.name, "held"]
    assert held["tried"], held["said"]
    assert not held["got"], held["said"]
    _is_ended_and_told(attack, held)


def _skip_what_is_not_for(user: str, attack: Attack) -> None:
    if attack.root_only and user != "root":
        pytest.skip("there is something to get only where the sandbox is root's")


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
