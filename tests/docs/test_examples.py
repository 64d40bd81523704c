"""The example scripts run offline and print what they promise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from markdown_blocks import ROOT

PROMISED = {
    "first_environment.py": "all cities  1.00",
    "tool_environment.py": "rewards   [1.0, 1.0, 1.0, 1.0]",
    "model_as_tool.py": "the expert: 4 calls, 12 cached",
    "simulated_user.py": "booked 1.00 of 16 trips",
    "rubric_environment.py": "2 of 3 scored; the judge failed 2 times",
}


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_example_runs(name: str) -> None:
    script = ROOT / "examples" / name
    result = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    assert PROMISED[name] in result.stdout
    assert not result.stderr
