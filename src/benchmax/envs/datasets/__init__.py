"""Rows of any source, checked and turned into examples. Start reading at `load`.

load            rows to examples, with a report of what cannot be used
readers         the sources, and `FORMATS`: the one table of file formats; `text_readers` reads JSON and CSV, `hub`
                datasets of Hugging Face
rows            the rules for a row
usable_rows     the rows a training run accepts
split           which rows are held out, or in which part
"""

from benchmax.envs.datasets.load import (
    DatasetReport,
    ExampleSet,
    check_dataset,
    iter_examples,
    jsonl_line,
    load_examples,
    overlap,
    stream_examples,
    write_jsonl,
)
from benchmax.envs.datasets.split import split_rows

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
