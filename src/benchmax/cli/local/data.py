"""`benchmax data`: look at a file of rows, and upload it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, new_table, print_json, print_result, print_table, safe, shorten, stderr, visible
from benchmax.cli.platform.connection import refusals
from benchmax.envs.datasets.load import DatasetReport
from benchmax.envs.datasets.readers import file_format, read_rows
from benchmax.envs.datasets.rows import Row, RowIssue, check_columns, check_shape
from benchmax.errors import DatasetError, NotFoundError, UsageError
from benchmax.platform.sdk.storage_client import StorageClient

app = typer.Typer(help="Look at datasets and upload them.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="A JSONL, JSON, CSV, TSV or parquet file.")]
_COLUMNS = 6
_CELL = 60
_SHOWN_ISSUES = 5


@app.command()
def upload(
    file: File,
    path: Annotated[str | None, typer.Option(help="Where on the platform (datasets/cli/NAME).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also with rows that cannot be read.")] = False,
    json: Json = False,
) -> None:
    """Upload a file to the platform, once all its rows can be read."""
    _must_exist(file)
    if not force and file_format(file) is not None:
        _warn_of_unusable(_unusable_in(file), file, "rows")
    with refusals(), StorageClient() as storage:
        answer = storage.upload_local_file(path or f"datasets/cli/{file.name}", file)
    found = {"blobPath": answer["blobPath"], "replaced": answer["willOverwrite"], "bytes": file.stat().st_size}
    note = "Replaced what was there." if found["replaced"] else "Uploaded."
    print_result(found, json, found["blobPath"], note)


@app.command()
def view(
    file: File,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows shown.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Rows left out at the start.")] = 0,
    json: Json = False,
) -> None:
    """Show rows as a table, and which of them a run could not use. The exit code is 1 when one cannot be read."""
    _must_exist(file)
    seen = [_look_at(row) for row in islice(read_rows(file), skip, skip + limit)]
    if json:
        print_json([_plain(each) for each in seen])
    else:
        _print_table(seen)
    faults = [each.unreadable for each in seen if each.unreadable is not None]
    for issue in faults:
        stderr.print(visible(issue), markup=False, style="red")
    _warn_of_unusable((each.unusable for each in seen), file, "rows shown")
    if faults:
        raise typer.Exit(FAILED)


class _Seen(NamedTuple):
    """A row, and what is wrong with it."""

    row: Row
    unreadable: RowIssue | None
    unusable: RowIssue | None
    """Why one that can be read becomes no example, unless an environment has columns of its own."""


def _look_at(row: Row) -> _Seen:
    if (fault := row.fault or check_shape(row.data)) is not None:
        return _Seen(row, row.issue(fault), None)
    return _Seen(
        row, None, next((row.issue(each) for each in check_columns(row.data) if each.severity == "error"), None)
    )


def _unusable_in(file: Path) -> Iterator[RowIssue | None]:
    """Of each row, why it is unusable; DatasetError for one that cannot be read."""
    for row in read_rows(file):
        seen = _look_at(row)
        if seen.unreadable is not None:
            raise DatasetError(
                f"The dataset has a row that cannot be read:\n  {seen.unreadable}\nNothing was uploaded. Correct it, "
                "or give --force.",
                [seen.unreadable],
            )
        yield seen.unusable


def _warn_of_unusable(rows: Iterable[RowIssue | None], file: Path, which: str) -> None:
    """Say how many are unusable, with the reasons of the first."""
    found = DatasetReport()
    for issue in rows:
        found.rows += 1
        if issue is not None:
            found.add(issue)
    for issue in found.issues[:_SHOWN_ISSUES]:
        stderr.print(visible(issue), markup=False, style="yellow")
    if found.errors:
        stderr.print(
            f"{found.errors:,} of the {found.rows:,} {which} cannot be used by an environment that does not override "
            f"dataset_preprocess. Check them with yours: benchmax validate main.py --data {safe(file)}"
        )


def _must_exist(file: Path) -> None:
    if file.is_dir():
        raise UsageError(f"{file} is a directory. Name the file with the rows.")
    if not file.is_file():
        raise NotFoundError(f"There is no file {file}. Check the path.")


def _plain(seen: _Seen) -> dict[str, Any]:
    return {
        "row": seen.row.number,
        # Parquet and CSV hold dates, bytes and numbers that JSON has no word for.
        "data": jsonlib.loads(jsonlib.dumps(seen.row.data, default=str), parse_constant=str),
        "fault": seen.unreadable and str(seen.unreadable),
        "unusable": seen.unusable and str(seen.unusable),
    }


def _print_table(rows: Sequence[_Seen]) -> None:
    names = list(dict.fromkeys(name for each in rows if isinstance(each.row.data, dict) for name in each.row.data))
    table = new_table("row", *map(_cell, names[:_COLUMNS]))
    for row, unreadable, unusable in rows:
        data = row.data if isinstance(row.data, dict) else {}
        fault = " [red]unreadable[/]" if unreadable else " [yellow]unusable[/]" if unusable else ""
        table.add_row(f"{row.number}{fault}", *(_cell(data.get(name)) for name in names[:_COLUMNS]))
    print_table(table)
    if more := names[_COLUMNS:]:
        stderr.print(f"Not shown: {safe(', '.join(map(str, more)))}. --json shows all.")


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else jsonlib.dumps(value, default=str)
    return safe(shorten(text, _CELL))
