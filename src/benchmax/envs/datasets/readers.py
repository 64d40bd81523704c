"""Rows from wherever they are: Python, JSONL, JSON, CSV, TSV, parquet, Hugging Face; `.gz` too.

JSONL, CSV and parquet stream: memory depends on the largest row allowed, not on the file. A row that cannot be read
is given with its fault instead of its data, and reading goes on with the next. Nothing is guessed: text is UTF-8, or
UTF-16 with a byte order mark; a number JSON cannot hold is refused, not rounded.
"""

from __future__ import annotations

import difflib
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from benchmax.envs.datasets.rows import Finding, Row, kind
from benchmax.envs.datasets.text_readers import csv_rows, json_rows, jsonl_rows
from benchmax.errors import DatasetError, NotFoundError, UsageError

Source: TypeAlias = "str | os.PathLike[str] | Iterable[Any]"

_PARQUET_ROWS = 256
"""Rows turned into Python objects at a time."""


def read_rows(source: Source) -> Iterator[Row]:
    """Every row of `source`, unreadable ones included (with their `fault`).

    A source is a list or other iterable of dicts, a file, a Hugging Face dataset, or `hf:owner/name[:split]`.
    """
    if isinstance(source, str) and source.startswith("hf:"):
        return _object_rows(_from_hub(source), source)
    if isinstance(source, str | os.PathLike):
        return _file_rows(Path(source))
    if isinstance(source, Mapping):
        return _object_rows(_only_split(source), "rows")
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise DatasetError(f"A dataset cannot be {kind(source)}. Give a list of dicts or the path of a file.")
    return _object_rows(source, source_name(source))


def named_rows(source: Source, name: str | None) -> Iterator[Row]:
    """The same, under another name than the source's own."""
    for row in read_rows(source):
        row.source = name or row.source
        yield row


def source_name(source: Source, otherwise: str = "rows") -> str:
    """What messages call the source: the path as given, or `rows`."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else otherwise


def _object_rows(rows: Iterable[Any], name: str) -> Iterator[Row]:
    return (Row(row, name, number) for number, row in enumerate(rows, 1))


def _only_split(splits: Mapping[str, Any]) -> Iterable[Any]:
    """The one split of a DatasetDict."""
    values = list(splits.values())
    if not values or not all(hasattr(value, "column_names") for value in values):
        raise DatasetError("A dataset cannot be a dict. Give a list of dicts, one for each row.")
    if len(values) > 1:
        raise DatasetError(
            f"The dataset has the splits {', '.join(splits)}. Give one: dataset[{next(iter(splits))!r}]."
        )
    return cast("Iterable[Any]", values[0])


def _from_hub(source: str) -> Iterable[Any]:
    name, _, split = source.removeprefix("hf:").partition(":")
    try:
        from datasets import load_dataset
    except ImportError:
        raise UsageError("Hub datasets need an extra: pip install 'benchmax[data]'.") from None
    try:
        return cast("Iterable[Any]", load_dataset(name, split=split or "train"))
    except Exception as error:
        raise DatasetError(
            f"Cannot load {name!r} from the hub: {type(error).__name__}: {error}. "
            "Check the name (hf:owner/name:split) and the network."
        ) from error


# Files


def _file_rows(path: Path) -> Iterator[Row]:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    reader = _READERS.get(suffix[0])
    if not os.path.exists(path):  # not path.exists(), which raises for a name that is too long
        raise NotFoundError(_not_found(path))
    if not path.is_file():
        raise DatasetError(f"{path} is not a file. Name the file with the rows.")
    if reader is None or (packed and reader is _parquet_rows):
        raise DatasetError(f"{path} is no dataset file. Use {', '.join(_READERS)} (text files also as .gz).")
    return _guarded(path, reader(path))


def _not_found(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    advice = f"Did you mean {path.parent / close[0]}?" if close else "Check the path; a hub dataset is hf:owner/name."
    return f"There is no file {path}. {advice}"


def _guarded(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows; a file that breaks off in the middle ends with a fault."""
    number = 0
    try:
        for row in rows:
            number = row.number
            yield row
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        damage = Finding(None, f"the file is damaged here: {error}", "write the file again")
        yield Row(None, str(path), number + 1, True, damage)
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}. Check the file and its rights.") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError("Parquet files need an extra: pip install 'benchmax[data]'.") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise DatasetError(f"{path} is not a parquet file: {error}. Write the file again.") from error
    with file:
        batches = file.iter_batches(batch_size=_PARQUET_ROWS)
        yield from _object_rows((row for batch in batches for row in batch.to_pylist()), str(path))


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": jsonl_rows,
    ".ndjson": jsonl_rows,
    ".json": json_rows,
    ".csv": csv_rows,
    ".tsv": csv_rows,
    ".parquet": _parquet_rows,
}
