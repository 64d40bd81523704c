"""Big datasets are read in little processor time, in memory that does not grow with the file."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from itertools import islice

import pytest

FILLER = "lorem ipsum " * 95
MEASURE = r"""
import json, re, sys, time
from pathlib import Path
from benchmax.envs.datasets import check_dataset
if sys.argv[1].endswith("parquet"):
    import pyarrow.parquet
def peak():
    # Not getrusage: a process inherits the peak of the one that started it.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
before, start = peak(), time.process_time()
report = check_dataset(sys.argv[1])
json.dump({
    "kept": report.kept, "duplicates": report.duplicates, "ok": report.ok,
    "grown": peak() - before, "peak": peak(), "seconds": time.process_time() - start,
}, sys.stdout)
"""


def rows(count):
    """Rows of about 1.2 kB; every thousandth repeats the first."""
    for i in range(count):
        n = i if i % 1000 or i == 0 else 0
        yield {"prompt": f"{n}: {FILLER}", "ground_truth": str(n)}


def save_jsonl(path, count):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(count))


def save_csv(path, count):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "ground_truth"])
        writer.writeheader()
        writer.writerows(rows(count))


def save_parquet(path, count):
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("prompt", pyarrow.string()), ("ground_truth", pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        every = rows(count)
        while some := list(islice(every, 5000)):
            writer.write_table(pyarrow.Table.from_pylist(some, schema))


SAVE = {"jsonl": save_jsonl, "csv": save_csv, "parquet": save_parquet}


def measured(path):
    """Checked in a process of its own, so that the peak is that of the check.

    The usual pool of parquet's library gives memory back late, how late is chance: the system's own does so at once.
    """
    variables = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("form", "thousands", "most"), [("jsonl", 50, 40), ("csv", 50, 40), ("parquet", 60, 50)])
def test_memory_is_a_part_of_the_text(form, thousands, most, tmp_path):
    """60 MB of text; of parquet, whose library takes some memory itself, 72 MB."""
    path = tmp_path / f"rows.{form}"
    SAVE[form](path, thousands * 1_000)
    found = measured(path)
    assert (found["kept"], found["duplicates"], found["ok"]) == (thousands * 1_000, thousands - 1, True)
    assert found["grown"] < most
    assert found["seconds"] < 20


def test_one_endless_line_costs_no_memory(tmp_path):
    path = tmp_path / "rows.jsonl"
    with open(path, "w") as file:
        file.write('{"prompt": "')
        file.writelines("x" * 1_000_000 for _ in range(200))
        file.write('"}\n{"prompt": "a"}\n')
    found = measured(path)
    assert (found["kept"], found["ok"]) == (1, False)
    assert found["grown"] < 30
    assert found["seconds"] < 5


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    save_jsonl(path, 1_000_000)
    assert path.stat().st_size > 1.1e9
    found = measured(path)
    assert (found["kept"], found["duplicates"]) == (1_000_000, 999)
    assert found["peak"] < 300
    assert found["seconds"] < 120
