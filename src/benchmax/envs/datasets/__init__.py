"""Rows of any source, checked and turned into examples."""

from benchmax.envs.datasets.load import (
    DatasetReport,
    ExampleSet,
    check_dataset,
    iter_examples,
    jsonl_line,
    load_examples,
    overlap,
    split_rows,
    stream_examples,
    write_jsonl,
)

__all__ = [
    "DatasetReport",
    "ExampleSet",
    "check_dataset",
    "iter_examples",
    "jsonl_line",
    "load_examples",
    "overlap",
    "split_rows",
    "stream_examples",
    "write_jsonl",
]
