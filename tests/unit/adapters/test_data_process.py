"""The dataset step for SkyRL: the flags and files of the README."""

from __future__ import annotations

import json
import sys

import pyarrow.parquet as pq
import pytest

from benchmax import BaseEnv, ToolDefinition
from benchmax.adapters.example_rows import COLUMN, carried
from benchmax.adapters.skyrl.benchmax_data_process import canonical_name, examples_of, main
from benchmax.errors import DatasetError

MODULE = """
from benchmax import BaseEnv, ToolDefinition

class SheetEnv(BaseEnv):
    system_prompt = "Edit the sheet."
    started = []

    def __init__(self, num_local_servers=50):
        self.started.append(num_local_servers)

    @classmethod
    def load_dataset(cls, dataset_name, **kwargs):
        if dataset_name != "sheets":
            raise KeyError(dataset_name)
        return [{"prompt": f"Sum row {number}.", "ground_truth": str(number)} for number in range(10)], None

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return super().dataset_preprocess(example) | {"init_rollout_args": {"file": example["ground_truth"] + ".xlsx"}}

    async def list_tools(self):
        return [ToolDefinition("fill", "Fill a cell.", {"type": "object", "properties": {"cell": {"type": "string"}}})]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": 1.0}

class SheetEnvLocal(SheetEnv):
    pass
"""


@pytest.fixture
def sheets(tmp_path, monkeypatch):
    (tmp_path / "sheets_package.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "sheets_package.SheetEnvLocal"
    sys.modules.pop("sheets_package", None)


def test_the_readme_command_writes_both_files(sheets, tmp_path, capsys):
    folder = tmp_path / "data" / "excel"
    assert main(["--local_dir", str(folder), "--dataset_name", "sheets", "--env_path", sheets]) == 0
    train, test = (pq.read_table(folder / f"{split}.parquet").to_pylist() for split in ("train", "test"))
    assert (len(train), len(test)) == (8, 2)
    assert "train.parquet: 8 rows" in capsys.readouterr().out
    row = train[0]
    assert row["env_class"] == row["data_source"] == "SheetEnv"
    system, user = row["prompt"]
    assert system["content"].startswith("Edit the sheet.\n\n# Tools")
    assert '"name": "fill"' in system["content"]
    assert user["role"] == "user"
    example = carried({COLUMN: row[COLUMN]}, row["prompt"])
    assert example["prompt_messages"] == [{"role": "user", "content": user["content"]}]
    assert row["ground_truth"] == example["task"]["ground_truth"]
    assert json.loads(row["init_rollout_args"]) == example["init_rollout_args"]
    assert sys.modules["sheets_package"].SheetEnv.started == [1]


def test_the_split_is_the_same_every_time(sheets, tmp_path):
    for name in ("one", "two"):
        main(["--local_dir", str(tmp_path / name), "--dataset_name", "sheets", "--env_path", sheets])
    assert (tmp_path / "one" / "test.parquet").read_bytes() == (tmp_path / "two" / "test.parquet").read_bytes()


@pytest.mark.parametrize(
    ("name", "env", "says"),
    [
        ("nothing", None, "load_dataset('nothing') failed"),
        ("sheets", "sheets_package.Other", "sheets_package"),
        ("sheets", "no_such_package.Env", "no_such_package"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(sheets, tmp_path, capsys, name, env, says):
    assert main(["--local_dir", str(tmp_path), "--dataset_name", name, "--env_path", env or sheets]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert says in told
    assert told.count("\n") == 1


class Split(BaseEnv):
    rows: object = None

    @classmethod
    def load_dataset(cls, dataset_name, **kwargs):
        return cls.rows, None

    async def list_tools(self):
        return [ToolDefinition("x", "x")]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {}


def rows(*numbers):
    return [{"prompt": f"{number}?", "ground_truth": number} for number in numbers]


def test_splits_named_train_and_test_are_kept(monkeypatch):
    monkeypatch.setattr(Split, "rows", {"train": rows(1), "test": rows(2, 3)})
    found = examples_of(Split, "any")
    assert {split: [each["task"]["ground_truth"] for each in part] for split, part in found.items()} == {
        "train": [1], "test": [2, 3],
    }  # fmt: skip


def test_other_splits_are_put_together(monkeypatch):
    monkeypatch.setattr(Split, "rows", {"train": rows(1, 2, 3), "validation": rows(4, 5)})
    found = examples_of(Split, "any")
    assert [len(found[split]) for split in ("train", "test")] == [4, 1]


def test_a_stream_is_refused(monkeypatch):
    monkeypatch.setattr(Split, "rows", iter(rows(1, 2)))
    with pytest.raises(DatasetError, match="a stream without a length"):
        examples_of(Split, "any")


def test_a_name_says_where_servers_run_only_beside_its_parent():
    class MathEnv(BaseEnv):
        async def compute_reward(self, *given, **more): ...

    class MathEnvSkypilot(MathEnv): ...

    class LocalMathEnv(MathEnv): ...

    class CafeLocal(MathEnv): ...

    assert [canonical_name(each) for each in (MathEnv, MathEnvSkypilot, LocalMathEnv, CafeLocal)] == [
        "MathEnv", "MathEnv", "MathEnv", "CafeLocal",
    ]  # fmt: skip
