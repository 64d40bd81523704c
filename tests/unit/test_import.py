"""`import benchmax` is quick and loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "fastapi", "sqlalchemy", "mcp", "datasets", "openai", "numpy", "aiohttp", "pyarrow")
SECONDS = 0.150

_TIMED = """
import time
began = time.process_time()  # other work on the machine is not ours
import benchmax
print(time.process_time() - began)
"""
_LOADED = """
import sys
{statement}
print(*sorted(set({heavy!r}) & {{name.partition(".")[0] for name in sys.modules}}))
"""


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_quick() -> None:
    best = min(float(run(_TIMED)) for _ in range(5))
    assert best < SECONDS, f"import benchmax took {best * 1000:.0f} ms at best"


@pytest.mark.parametrize(
    "statement",
    [
        "import benchmax",
        "from benchmax import BaseEnv, EnvHost, ScriptedModel, evaluate, load_examples, run_rollout",
        "from benchmax import Rewards, Rubric, Judge, validate_env",
        "import benchmax.testing",
        "from benchmax.cli.app import app",
    ],
)
def test_nothing_heavy_is_loaded(statement: str) -> None:
    assert run(_LOADED.format(statement=statement, heavy=HEAVY)) == ""
