"""Reads rows from Python objects, files and Hugging Face. `FORMATS` lists the file formats.

JSONL, CSV and parquet stream: memory depends on the largest row allowed, not on the file. A row that cannot be read
is returned with its fault instead of its data, and reading continues with the next. Nothing is guessed: text is UTF-8,
or UTF-16 with a byte order mark; a number JSON cannot hold is refused, not rounded.
"""

from __future__ import annotations

import difflib
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeAlias, cast

from benchmax import extras
from benchmax.envs.datasets.hub import load_hub_dataset
from benchmax.envs.datasets.rows import Complaint, Row, json_type
from benchmax.envs.datasets.text_readers import JSON_FILE_BYTES, csv_rows, json_rows, jsonl_rows
from benchmax.errors import BenchmaxError, DatasetError, NotFoundError, UsageError, describe_cause

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
        raise DatasetError(f"A dataset cannot be {json_type(source)}. Give a list of dicts or the path of a file.")
    return _object_rows(source, source_name(source))


def readable_rows(source: Source) -> Iterator[Row]:
    """Every row; DatasetError, with its line, at one that cannot be read."""
    for row in read_rows(source):
        if row.fault is not None:
            issue = row.issue(row.fault)
            raise DatasetError(f"The dataset has a row that cannot be read:\n  {issue}", [issue])
        yield row


def named_rows(source: Source, name: str | None) -> Iterator[Row]:
    """The same, under another name than the source's own."""
    for row in read_rows(source):
        row.source = name or row.source
        yield row


def source_name(source: Source, otherwise: str = "rows") -> str:
    """The source's name in messages: the path as given, or `rows`."""
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
        return cast("Iterable[Any]", load_hub_dataset(name, split=split or "train"))
    except ImportError:
        raise UsageError(f"Hub datasets need an extra: {extras.install('data')}.") from None
    except BenchmaxError:
        raise
    except Exception as error:
        raise DatasetError(
            f"Cannot load {name!r} from the hub: {describe_cause(error)}. "
            "Check the name (hf:owner/name:split) and the network."
        ) from error


# Files


def _file_rows(path: Path) -> Iterator[Row]:
    packed = path.suffix.lower() == ".gz"
    known = file_format(path.with_suffix("") if packed else path)
    if not os.path.exists(path):  # not path.exists(), which raises for a name that is too long
        raise NotFoundError(_not_found(path))
    if not path.is_file():
        raise DatasetError(f"{path} is not a file. Name the file with the rows.")
    if known is None or (packed and not known.may_be_gzipped):
        raise DatasetError(f"{path} is no dataset file. Use {', '.join(FORMATS)} (text files also as .gz).")
    return _guarded(path, known.read(path))


def _not_found(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    advice = f"Did you mean {path.parent / close[0]}?" if close else "Check the path; a hub dataset is hf:owner/name."
    return f"There is no file {path}. {advice}"


def _guarded(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows; a file that is cut or damaged ends with a fault."""
    number = 0
    try:
        for row in rows:
            number = row.number
            yield row
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        damage = Complaint(None, f"the file is damaged here: {error}", "write the file again")
        yield Row(None, str(path), number + 1, True, damage)
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}. Check the file and its rights.") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"Parquet files need an extra: {extras.install('data')}.") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise DatasetError(f"{path} is not a parquet file: {error}. Write the file again.") from error
    with file:
        batches = file.iter_batches(batch_size=_PARQUET_ROWS)
        rows = (row for batch in batches for row in batch.to_pylist())
        try:
            yield from _object_rows(rows, str(path))
        except (pyarrow.ArrowException, OverflowError) as error:
            raise DatasetError(
                f"{path} has values that cannot be read: {error}. Write it again, dates as text."
            ) from error


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of dataset file, known by its suffix."""

    read: Callable[[Path], Iterator[Row]]
    mime_type: str
    row_per_line: bool = False
    """Counting lines counts rows."""
    whole: bool = False
    """Reading takes memory in proportion to the file, or more: a server reads it in a process with a memory limit."""
    most_bytes: int | None = None
    """The largest file that is read."""
    may_be_gzipped: bool = True


FORMATS: dict[str, FileFormat] = {
    ".jsonl": FileFormat(jsonl_rows, "application/jsonl", row_per_line=True),
    ".ndjson": FileFormat(jsonl_rows, "application/x-ndjson", row_per_line=True),
    ".json": FileFormat(json_rows, "application/json", whole=True, most_bytes=JSON_FILE_BYTES),
    ".csv": FileFormat(csv_rows, "text/csv"),
    ".tsv": FileFormat(csv_rows, "text/tab-separated-values"),
    ".parquet": FileFormat(_parquet_rows, "application/vnd.apache.parquet", whole=True, may_be_gzipped=False),
}
"""Every format of dataset files. Server, SDK and command line take theirs from here."""


def file_format(path: str | PurePath) -> FileFormat | None:
    """The format of a dataset file; None for other files."""
    return FORMATS.get(PurePath(path).suffix.lower())
