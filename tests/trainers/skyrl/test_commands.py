"""The commands of the page and of the examples' README: the dataset step whole, the run as far as no GPU allows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_pages import check_page, page

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


@pytest.fixture(scope="module")
def excel_home(tmp_path_factory):
    """A home with the Excel dataset: the first command of the README, on rows in the shape of SpreadsheetBench."""
    folder = tmp_path_factory.mktemp("excel")
    bench = spreadsheetbench(folder / "bench", rows=10)
    (data,) = (command for command in EXCEL if "benchmax_data_process" in command)
    done = run(data, folder, BENCHMAX_SPREADSHEETBENCH=str(bench))
    assert done.returncode == 0, done.stderr
    assert "data/excel/train.parquet: 8 rows" in done.stdout
    assert "data/excel/test.parquet: 2 rows" in done.stdout
    return folder


def spreadsheetbench(folder: Path, rows: int) -> Path:
    """A dataset as SpreadsheetBench publishes it: a sum to write into a cell."""
    import openpyxl

    listed = []
    for number in range(rows):
        place = folder / "spreadsheet" / str(number)
        place.mkdir(parents=True)
        for name, total in (("input", None), ("answer", 2 * number + 1)):
            book = openpyxl.Workbook()
            book.active["A1"], book.active["A2"], book.active["B1"] = number, number + 1, total
            book.save(place / f"1_{number}_{name}.xlsx")
        listed.append(
            {
                "id": number, "instruction": f"Write the sum of column A, {2 * number + 1}, into B1.",
                "spreadsheet_path": f"spreadsheet/{number}", "instruction_type": "Cell-Level Manipulation",
                "answer_position": "B1",
            }
        )  # fmt: skip
    (folder / "dataset.json").write_text(json.dumps(listed))
    return folder


def test_the_pages_show_the_same_commands():
    assert len(MATH) == 4
    assert len(EXCEL) == 3


def test_excel_rows_list_every_tool_that_they_need(excel_home):
    import pyarrow.parquet

    row = pyarrow.parquet.read_table(excel_home / "data" / "excel" / "train.parquet").to_pylist()[0]
    assert row["env_class"] == row["data_source"] == "ExcelEnv"
    system = row["prompt"][0]
    assert system["role"] == "system"
    assert all(name in system["content"] for name in ("set_cell", "fill_cells", "get_cells", "run_excel_code"))


def test_excel_goes_through_one_step(excel_home):
    (command,) = (command for command in EXCEL if command.endswith("--smoke"))
    done = run(command, excel_home)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ExcelEnv is open, with 4 tools" in done.stdout
    assert "6 rollouts of 2 prompts, 2 tool calls" in done.stdout
    assert "none" not in re.search(r"rewards: (.*)", done.stdout)[1]


def test_excel_without_the_dataset_is_refused_in_one_line(tmp_path):
    (data,) = (command for command in EXCEL if "benchmax_data_process" in command)
    done = run(data, tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: SpreadsheetBench is not at")


def test_smoke_goes_through_one_step(home):
    (command,) = (command for command in MATH if command.endswith("--smoke"))
    done = run(command, home)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"6 rollouts of 2 prompts, 2 tool calls, 2 of them ok", done.stdout)
    assert "rewards: 0, 1, 0, 0, 1, 0" in done.stdout
    assert float(re.search(r"advantages and loss: (-?[\d.]+)", done.stdout)[1]) != 0


def test_the_page_installs_what_is_tested_here():
    check_page("skyrl", "skyrl")


MINE = '''"""An environment of somebody's own."""
from benchmax import BaseEnv

class MyEnv(BaseEnv):
    def __init__(self, size):
        self.size = size

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"short": float(len(str(messages[-1]["content"])) < self.size)}
'''


def test_the_script_of_the_page_goes_through_one_step(tmp_path):
    (code,) = re.findall(r"```text\n(import sys.*?)```", page("skyrl"), re.DOTALL)
    (tmp_path / "script.py").write_text(code)
    (tmp_path / "my_package.py").write_text(MINE)
    rows = "".join(f'{{"prompt": "say {n}", "ground_truth": "{n}"}}\n' for n in range(10))
    (tmp_path / "rows.jsonl").write_text(rows)
    process = ROOT / "src" / "benchmax" / "adapters" / "skyrl" / "benchmax_data_process.py"
    data = f"python {process} --local_dir ~/data --dataset_name {tmp_path}/rows.jsonl --env_path my_package.MyEnv"
    given = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    data = data.replace("python ", f"{sys.executable} ", 1)
    refused = run(data, tmp_path, **given)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "MyEnv needs the argument 'size'. Give it with --env-arg size=VALUE." in refused.stderr
    written = run(f"{data} --env_arg size=3", tmp_path, **given)
    assert written.returncode == 0, written.stderr
    words = f"data.train_data=['{tmp_path}/data/train.parquet'] data.val_data=['{tmp_path}/data/test.parquet']"
    done = run(f"{sys.executable} {tmp_path}/script.py --smoke {shlex.join(words.split())}", tmp_path, **given)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "6 rollouts of 2 prompts" in done.stdout


@pytest.mark.parametrize("command", [each for each in MATH + EXCEL if "run_benchmax" in each and "--smoke" not in each])
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
