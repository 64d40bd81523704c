"""The tools of all rollouts run at once: TRL's own loop and ours, measured in one run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from trl_tools import SECONDS, its_own, ours


def test_one_turn_waits_for_one_tool_not_for_all(tmp_path):
    own, (quick, cpu) = its_own(tmp_path, 64), ours(tmp_path, 64)
    assert own >= 64 * SECONDS
    assert quick < own / 6  # other work may run on this machine
    assert cpu < 0.1
