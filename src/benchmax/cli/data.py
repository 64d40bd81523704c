"""`benchmax data`: look at a file of rows, and upload it."""

from __future__ import annotations

import json as jsonlib
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.cli.account import Json, new_table, print_table, refusals
from benchmax.cli.output import FAILED, print_json, safe, shorten, visible, words
from benchmax.envs.readers import read_rows
from benchmax.envs.rows import Row
from benchmax.errors import NotFoundError

app = typer.Typer(help="Look at datasets and upload them.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="A JSONL, JSON, CSV, TSV or parquet file.")]
_COLUMNS = 6
_CELL = 60


@app.command()
def upload(
    file: File,
    path: Annotated[str | None, typer.Option(help="Where on the platform (datasets/cli/NAME).")] = None,
    json: Json = False,
) -> None:
    """Upload a file to the platform."""
    from benchmax.platform.client import StorageClient

    _must_exist(file)
    with refusals(), StorageClient() as storage:
        answer = storage.upload_local_file(path or f"datasets/cli/{file.name}", file)
    found = {"blobPath": answer["blobPath"], "replaced": answer["willOverwrite"], "bytes": file.stat().st_size}
    if json:
        print_json(found)
        return
    words.print("Replaced what was there." if found["replaced"] else "Uploaded.")
    typer.echo(visible(found["blobPath"]))


@app.command()
def view(
    file: File,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows shown.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Rows left out at the start.")] = 0,
    json: Json = False,
) -> None:
    """Show rows as a table. The exit code is 1 when a shown row cannot be read."""
    _must_exist(file)
    rows = list(islice(read_rows(file), skip, skip + limit))
    if json:
        print_json([_plain(row) for row in rows])
    else:
        _print_table(rows)
    faults = [row.issue(row.fault) for row in rows if row.fault is not None]
    for issue in faults:
        words.print(visible(issue), markup=False, soft_wrap=True, style="red")
    if faults:
        raise typer.Exit(FAILED)


def _must_exist(file: Path) -> None:
    if not file.is_file():
        raise NotFoundError(f"There is no file {file}. Check the path.")


def _plain(row: Row) -> dict[str, Any]:
    fault = None if row.fault is None else str(row.issue(row.fault))
    # Parquet and CSV hold dates and bytes that JSON has no word for.
    return {"row": row.number, "data": jsonlib.loads(jsonlib.dumps(row.data, default=str)), "fault": fault}


def _print_table(rows: list[Row]) -> None:
    good = [row for row in rows if isinstance(row.data, dict)]
    names = list(dict.fromkeys(name for row in good for name in row.data))
    table = new_table("row", *map(_cell, names[:_COLUMNS]))
    for row in good:
        table.add_row(str(row.number), *(_cell(row.data.get(name)) for name in names[:_COLUMNS]))
    print_table(table)
    if more := names[_COLUMNS:]:
        words.print(f"Not shown: {safe(', '.join(map(str, more)))}. --json shows all.", soft_wrap=True)


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else jsonlib.dumps(value, default=str)
    return safe(shorten(text, _CELL))
