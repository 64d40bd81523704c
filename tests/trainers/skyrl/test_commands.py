"""The commands of the page and of the examples' README: the dataset step whole, the run as far as no GPU allows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / "trainers" / "skyrl.md", ROOT / "examples" / "skyrl" / "README.md"]


def commands() -> list[str]:
    """Each command that the pages show, once."""
    blocks = [block for page in PAGES for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)]
    return list(dict.fromkeys(line.strip() for block in blocks for line in block.splitlines()))


MATH = [command for command in commands() if "math" in command]
EXCEL = [command for command in commands() if "excel" in command]


def run(command: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command.replace("~", str(home)).replace("uv run ", f"{sys.executable} "))
    given = {"HOME": str(home), "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **variables}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        given[name] = value
    return subprocess.run(words, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the dataset, written by the first command of the page."""
    folder = tmp_path_factory.mktemp("home")
    (data,) = (command for command in MATH if "benchmax_data_process" in command)
    done = run(data, folder)
    assert done.returncode == 0, done.stderr
    assert "data/math/train.parquet: 800 rows" in done.stdout
    return folder


def test_the_pages_show_the_same_commands():
    assert len(MATH) == 4
    assert len(EXCEL) == 2


def test_smoke_goes_through_one_step(home):
    (command,) = (command for command in MATH if command.endswith("--smoke"))
    done = run(command, home)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"6 rollouts of 2 prompts, 2 tool calls, 2 of them ok", done.stdout)
    assert "rewards: 0, 1, 0, 0, 1, 0" in done.stdout
    assert float(re.search(r"advantages and loss: (-?[\d.]+)", done.stdout)[1]) != 0


@pytest.mark.parametrize("command", [each for each in MATH if "run_benchmax" in each and "--smoke" not in each])
def test_without_a_gpu_one_line_says_so(home, command):
    done = run(command, home)
    assert done.returncode == 2
    assert (
        done.stderr.strip().splitlines()[-1].startswith("error: SkyRL trains on NVIDIA GPUs, and this machine has none")
    )


def test_a_setting_that_skyrl_does_not_know_is_named(home):
    done = run("bash examples/skyrl/run_benchmax_math.sh --smoke trainer.epochz=2", home)
    assert done.returncode == 2
    assert "SkyRL refuses these settings: Invalid fields {'epochz'}" in done.stderr


def test_a_dataset_that_is_not_there_is_named(tmp_path):
    done = run("bash examples/skyrl/run_benchmax_math.sh --smoke", tmp_path)
    assert done.returncode == 2
    assert "Write it with benchmax_data_process.py first" in done.stderr
