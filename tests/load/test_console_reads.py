"""What the console's reads send to the database: a few statements, however much there is (L9, `make bench`)."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _platform_data import Size, build, wanted
from platform_reads import reads, statements

from benchmax.platform.store.datadir import DataDir

MOST = {"comparison": 9, "details": 6}
"""Three find the caller and the run; the rest is the answer."""


@pytest.fixture
def data(tmp_path):
    return DataDir(tmp_path / "data").create()


def test_every_read_is_a_few_statements(store, data):
    key = build(store, data, Size(runs=12, rollouts=1600, points=6000, long_steps=60))
    asked = reads(wanted(store))
    counted = statements(store, data, key, asked)
    assert counted.keys() == asked.keys()
    for name, count in counted.items():
        assert count <= MOST.get(name, 5), (name, count)
    assert counted["runs list"] == counted["runs list, all"], "no query for each run"
