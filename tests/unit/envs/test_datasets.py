"""Whole datasets: what is refused, what is reported, splitting and writing."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time

import pytest

from benchmax import BaseEnv, limits
from benchmax.envs.datasets import (
    DatasetReport,
    check_dataset,
    iter_examples,
    jsonl_line,
    load_examples,
    overlap,
    split_rows,
    write_jsonl,
)
from benchmax.envs.datasets.readers import read_rows
from benchmax.errors import DatasetError, NotFoundError

ROWS = [{"prompt": "what is 2+2?", "ground_truth": "4"}, {"prompt": "é 漢 😀"}, {"prompt": "third", "x": [1, None]}]


def ids(source, **kwargs):
    return [example["id"] for example in load_examples(source, **kwargs)]


def save(folder, name, content):
    path = folder / name
    path.write_text(content)
    return path


def many(count):
    return [{"prompt": f"what is {i}?"} for i in range(count)]


@pytest.mark.parametrize(("count", "accepted"), [(0, False), (1, False), (15, False), (16, True), (17, True)])
def test_minimum_for_training(count, accepted):
    if accepted:
        assert len(load_examples(many(count), min_rows=limits.MIN_TRAIN_ROWS)) == count
        return
    with pytest.raises(DatasetError) as refused:
        load_examples(many(count), min_rows=limits.MIN_TRAIN_ROWS)
    assert str(refused.value) == (
        f"rows has {count} usable rows; at least 16 are needed. Add {16 - count} or more."
        if count
        else "rows has no rows. Add rows with a prompt (or messages) and what the reward needs."
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json"])
def test_empty_files_are_refused_even_when_lenient(name, tmp_path):
    empty = {"a.jsonl": "", "a.csv": "prompt\n", "a.json": "[]"}[name]
    with pytest.raises(DatasetError, match="has no rows"):
        load_examples(save(tmp_path, name, empty), lenient=True)


def test_lenient_still_needs_a_usable_row_and_the_minimum():
    with pytest.raises(DatasetError, match=r"No row of rows can be used:\n  rows:1: prompt: is empty"):
        load_examples([{"prompt": ""}], lenient=True)
    with pytest.raises(DatasetError, match="rows has 15 usable rows; at least 16"):
        load_examples([*many(15), {"prompt": ""}], lenient=True, min_rows=16)
    assert len(load_examples([*many(16), {"prompt": ""}], lenient=True, min_rows=16)) == 16


def test_the_refusal_lists_every_bad_row():
    with pytest.raises(DatasetError) as refused:
        load_examples([{"prompt": ""}, {"prompt": "a"}, {"q": 1}])
    assert str(refused.value) == (
        "2 of 3 rows of rows cannot be used:\n"
        "  rows:1: prompt: is empty → write what the model is asked\n"
        "  rows:3: the row has neither prompt nor messages; its columns are: q → "
        "rename a column to prompt or messages, or override dataset_preprocess\n"
        "Fix them, or keep only the usable rows with --lenient (in Python: lenient=True)."
    )


def test_duplicates_are_counted_and_warned_of():
    loaded = load_examples(
        [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"}, {"prompt": "a", "init_rollout_args": None}]
    )
    assert (len(loaded), loaded.report.duplicates, loaded.report.warnings) == (4, 2, 2)
    assert str(loaded.report.issues[0]) == (
        "rows:3: warning: the row repeats an earlier one (same prompt and task) → "
        "remove it, unless it should count twice"
    )


def test_report_prints_a_short_table():
    report = check_dataset([{"prompt": ""}, {"prompt": "a"}, {"prompt": "a"}])
    assert str(report) == (
        "rows\n"
        "  rows               3\n"
        "  usable             2\n"
        "  errors             1\n"
        "  warnings           1\n"
        "  duplicates         1\n"
        "  rows:1: prompt: is empty → write what the model is asked\n"
        "  rows:3: warning: the row repeats an earlier one (same prompt and task) → "
        "remove it, unless it should count twice"
    )
    assert not report.ok
    assert str(DatasetReport()).count("\n") == 5


def test_iterating_yields_good_rows_and_then_refuses():
    stream = iter_examples([{"prompt": "a"}, {"prompt": ""}, {"prompt": "b"}])
    assert [next(stream)["task"]["prompt"], next(stream)["task"]["prompt"]] == ["a", "b"]
    with pytest.raises(DatasetError, match="1 of 3 rows"):
        next(stream)


def test_limit_reads_no_further():
    def rows():
        yield from many(3)
        raise AssertionError("read too far")

    assert len(load_examples(rows(), limit=3)) == 3


def test_overlap_counts_evaluation_examples_seen_in_training():
    train, evaluation = load_examples(many(10)), load_examples(many(12)[8:])
    assert overlap(train, evaluation) == 2
    assert overlap(evaluation, evaluation) == 4


def test_split_in_order_and_shuffled():
    rows = many(10)
    assert split_rows(rows) == (rows[:8], rows[8:])
    train, evaluation = split_rows(rows, 0.5, seed=1)
    assert (train, evaluation) == split_rows(rows, 0.5, seed=1)
    assert (train, evaluation) != split_rows(rows, 0.5, seed=2)
    assert sorted(row["prompt"] for row in train + evaluation) == [row["prompt"] for row in rows]
    assert rows == many(10)
    for share in (0, 1, 1.5, -1):
        with pytest.raises(DatasetError, match="between 0 and 1"):
            split_rows(rows, share)


# Writing


def test_write_jsonl_is_one_dumps_a_line(tmp_path):
    path = tmp_path / "out.jsonl"
    assert write_jsonl(path, (row for row in ROWS)) == 3
    assert path.read_bytes() == "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    assert ids(path) == ids(ROWS)
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"a": {1, 2}}, "rows:2: a: is a set, which is not JSON → turn it into text, a number, a list or a dict"),
        ({"a": float("nan")}, "rows:2: a: is NaN, which is not JSON → write null or a finite number"),
        ({1: "a"}, "rows:2: 1: is a key that is not text → use text for every key"),
        (["a"], 'rows:2: the row is a list, not an object → write {"prompt": "…", "ground_truth": "…"}'),
    ],
)
def test_write_jsonl_refuses_and_leaves_the_old_file(row, text, tmp_path):
    path = save(tmp_path, "out.jsonl", "old\n")
    with pytest.raises(DatasetError) as refused:
        write_jsonl(path, [ROWS[0], row])
    assert str(refused.value) == f"Cannot write the rows as JSONL:\n  {text}"
    assert path.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_write_jsonl_needs_its_folder(tmp_path):
    with pytest.raises(DatasetError, match=r"There is no folder .*none to write a.jsonl to. Make it first."):
        write_jsonl(tmp_path / "none" / "a.jsonl", ROWS)


def test_jsonl_line_is_compact_json():
    assert jsonl_line({"a": "é"}) == '{"a": "\\u00e9"}'


def test_importing_datasets_stays_light():
    code = (
        "import sys, benchmax.envs.datasets; "
        "print([m for m in ('datasets', 'pyarrow', 'torch', 'pandas', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_hub_names_are_loaded_by_datasets(tmp_path):
    (tmp_path / "set").mkdir()
    save(tmp_path / "set", "train.jsonl", "\n".join(map(json.dumps, ROWS)))
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from benchmax.envs.datasets import load_examples\n"
        "print([e['id'] for e in load_examples('hf:' + sys.argv[1])])\n"
        "try: load_examples('hf:owner/not-here:test')\n"
        "except ValueError as error: print(error)"
    )
    home = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "set")], capture_output=True, text=True, env=home, check=True
    )
    found, refusal = done.stdout.splitlines()
    assert found == str(ids(ROWS))
    assert refusal.startswith("The Hugging Face hub cannot be reached from here, and 'owner/not-here' was not fetched")


# Without a network


@pytest.mark.parametrize("load", [lambda: list(read_rows("hf:owner/name")), lambda: BaseEnv.load_dataset("owner/name")])
def test_a_set_of_the_hub_without_a_network_is_told_at_once(load, monkeypatch) -> None:
    importlib.import_module("datasets")  # whose own seconds are not what is measured
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    began = time.monotonic()
    with pytest.raises(NotFoundError, match=r"hub cannot be reached from here, .*'owner/name'.*Check the network"):
        load()
    assert time.monotonic() - began < 20  # without care it is half a minute of tries


def test_a_file_is_loaded_without_a_network(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "rows.json").write_text('[{"prompt": "a"}]')
    rows, _ = BaseEnv.load_dataset("json", data_files=str(tmp_path / "rows.json"), split="train", cache_dir=tmp_path)
    assert list(rows) == [{"prompt": "a"}]
