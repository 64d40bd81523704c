"""Every broken environment is caught by name; good ones have no errors."""

from __future__ import annotations

from typing import Any

import pytest

from benchmax.doctor import CHECKS, examine
from benchmax.doctor.findings import HOLDS
from benchmax.envs.base_env import BaseEnv
from broken_envs import BROKEN, GOOD, Broken


@pytest.mark.parametrize("broken", BROKEN, ids=str)
async def test_a_broken_environment_is_caught_by_name(broken: Broken) -> None:
    diagnosis = await examine(broken.env, **{"rows": broken.rows, **broken.options})
    found = diagnosis.find(broken.check)
    assert found, f"not caught; found instead:\n{diagnosis}"
    assert found[0].severity == broken.severity
    assert found[0].evidence
    assert found[0].fix
    assert broken.check in diagnosis.failed or broken.severity == "warning"
    assert broken.check not in diagnosis.passed


@pytest.mark.parametrize(("env", "rows"), GOOD, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_good_environment_has_no_errors(env: type[BaseEnv], rows: list[dict[str, Any]]) -> None:
    diagnosis = await examine(env, rows=rows)
    assert diagnosis.errors == []
    assert diagnosis.ok


def test_the_zoo_is_big_and_meets_nearly_every_check() -> None:
    assert len({broken.env for broken in BROKEN}) >= 24
    assert {broken.check for broken in BROKEN} == set(CHECKS) - {HOLDS}  # which would hold this very process
