"""`benchmax data`: look at a file of rows, and upload it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.cli.output import FAILED, Json, new_table, print_json, print_table, safe, shorten, stderr, visible
from benchmax.cli.platform.connection import refusals
from benchmax.envs.datasets.readers import file_format, read_rows
from benchmax.envs.datasets.rows import Row, RowIssue, check_columns, check_shape
from benchmax.errors import DatasetError, NotFoundError, UsageError

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
    from benchmax.platform.sdk.client import StorageClient

    _must_exist(file)
    if not force and file_format(file) is not None:
        _check_rows(file)
    with refusals(), StorageClient() as storage:
        answer = storage.upload_local_file(path or f"datasets/cli/{file.name}", file)
    found = {"blobPath": answer["blobPath"], "replaced": answer["willOverwrite"], "bytes": file.stat().st_size}
    if json:
        print_json(found)
        return
    stderr.print("Replaced what was there." if found["replaced"] else "Uploaded.")
    typer.echo(visible(found["blobPath"]))


@app.command()
def view(
    file: File,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows shown.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Rows left out at the start.")] = 0,
    json: Json = False,
) -> None:
    """Show rows as a table, and which of them a run could not use. The exit code is 1 when one cannot be read."""
    _must_exist(file)
    rows = list(islice(read_rows(file), skip, skip + limit))
    if json:
        print_json([_plain(row) for row in rows])
    else:
        _print_table(rows)
    faults = [issue for row in rows if (issue := _issue(row)) is not None]
    for issue in faults:
        stderr.print(visible(issue), markup=False, soft_wrap=True, style="red")
    _warn_of_unusable(_UnusableRows(rows), file, shown=True)
    if faults:
        raise typer.Exit(FAILED)


def _check_rows(file: Path) -> None:
    unusable = _UnusableRows()
    for row in read_rows(file):
        unusable.look_at(row)
        if (issue := _issue(row)) is not None:
            raise DatasetError(
                f"The dataset has a row that cannot be read:\n  {issue}\nNothing was uploaded. Correct it, or give "
                "--force.",
                [issue],
            )
    _warn_of_unusable(unusable, file)


def _issue(row: Row) -> RowIssue | None:
    """What makes a row unreadable."""
    fault = row.fault or check_shape(row.data)
    return None if fault is None else row.issue(fault)


def _unusable(row: Row) -> RowIssue | None:
    """Why a row that can be read becomes no example, unless an environment has columns of its own."""
    if _issue(row) is not None:
        return None
    return next((row.issue(each) for each in check_columns(row.data) if each.severity == "error"), None)


class _UnusableRows:
    """How many rows are unusable, with the reasons of the first."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.seen, self.count, self.first = 0, 0, list[RowIssue]()
        for row in rows:
            self.look_at(row)

    def look_at(self, row: Row) -> None:
        issue = _unusable(row)
        self.seen += 1
        self.count += issue is not None
        if issue is not None and self.count <= _SHOWN_ISSUES:
            self.first.append(issue)


def _warn_of_unusable(rows: _UnusableRows, file: Path, *, shown: bool = False) -> None:
    for issue in rows.first:
        stderr.print(visible(issue), markup=False, soft_wrap=True, style="yellow")
    if rows.count:
        stderr.print(
            f"{rows.count:,} of the {rows.seen:,} rows{' shown' if shown else ''} cannot be used by an environment "
            "that does not override dataset_preprocess. Check them with yours: "
            f"benchmax validate main.py --data {safe(file)}",
            soft_wrap=True,
        )


def _must_exist(file: Path) -> None:
    if file.is_dir():
        raise UsageError(f"{file} is a directory. Name the file with the rows.")
    if not file.is_file():
        raise NotFoundError(f"There is no file {file}. Check the path.")


def _plain(row: Row) -> dict[str, Any]:
    issue = _issue(row)
    # Parquet and CSV hold dates and bytes that JSON has no word for.
    data = jsonlib.loads(jsonlib.dumps(row.data, default=str))
    unusable = _unusable(row)
    return {
        "row": row.number,
        "data": data,
        "fault": None if issue is None else str(issue),
        "unusable": None if unusable is None else str(unusable),
    }


def _print_table(rows: list[Row]) -> None:
    good = [row for row in rows if isinstance(row.data, dict)]
    names = list(dict.fromkeys(name for row in good for name in row.data))
    table = new_table("row", *map(_cell, names[:_COLUMNS]))
    for row in rows:
        data = row.data if isinstance(row.data, dict) else {}
        fault = " [red]unreadable[/]" if _issue(row) else " [yellow]unusable[/]" if _unusable(row) else ""
        table.add_row(f"{row.number}{fault}", *(_cell(data.get(name)) for name in names[:_COLUMNS]))
    print_table(table)
    if more := names[_COLUMNS:]:
        stderr.print(f"Not shown: {safe(', '.join(map(str, more)))}. --json shows all.", soft_wrap=True)


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else jsonlib.dumps(value, default=str)
    return safe(shorten(text, _CELL))
