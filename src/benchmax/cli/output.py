"""What a command prints: data on stdout, messages on stderr, and hostile text made harmless."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmax.cli.exit_codes import FAILED
from benchmax.extras import spelled
from benchmax.files.display import printable

T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
"""The option of every command whose result programs may want."""

PIPE_COLUMNS = 240

stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""For messages; data goes to stdout. A line stays whole, so that a command in it can be copied, also from a log."""

_SPACES = "\n\t\xa0\u2007\u202f\u3000"
"""Not control characters, though Python does not call them printable."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def print_json(value: Any) -> None:
    """A command's result, for programs."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    sys.stdout.write(_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text) + "\n")


def print_json_line(value: Any) -> None:
    """One of several results, for programs that read them as they come."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def new_table(*columns: str) -> Table:
    """A table whose first column, the id, is never cut or broken."""
    table = Table(box=None, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, no_wrap=number == 0, overflow="fold")
    return table


def stdout() -> Console:
    """For data that people read; wide in a pipe, where there is no screen to fit."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def print_table(table: Table) -> None:
    stdout().print(table)


def print_result(value: Any, json: bool, text: object, note: str = "") -> None:
    """A result: as JSON, or as one line of text after a note on stderr."""
    if json:
        print_json(value)
        return
    if note:
        stderr.print(note)
    typer.echo(visible(text))


def print_rows(
    rows: Sequence[T],
    json: bool,
    columns: Sequence[str],
    cells: Callable[[T], Iterable[object]],
    style: Callable[[T], str] = lambda row: "",
) -> None:
    """A list: as JSON, or as a table with the cells of each row."""
    if json:
        print_json(rows)
        return
    table = new_table(*columns)
    for row in rows:
        table.add_row(*map(safe, cells(row)), style=style(row))
    print_table(table)


def print_answer(answer: Mapping[str, Any], json: bool) -> None:
    """What a platform says to a change; the command fails where it says that nothing was done."""
    stderr.print(safe(answer["message"]))
    if json:
        print_json(answer)
    if not answer.get("success", True):
        raise typer.Exit(FAILED)


def visible(text: object) -> str:
    """Text from a model, a tool or a dataset: control characters shown as escapes."""
    return printable(str(text), keep=_SPACES)


def safe(text: object) -> str:
    """The same, escaped for rich's markup."""
    return escape(visible(text))


def shorten(text: object, most: int = 80) -> str:
    """One line of bounded length."""
    line = " ".join(visible(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def status_word(status: str) -> str:
    """A run's status as people and the console call it; the wire calls a stopped run cancelled."""
    return "stopped" if status == "cancelled" else status


def ended_words(status: str) -> str:
    """How something ended, as the end of a sentence: "is complete", "has failed"."""
    return f"{'has' if status in ('failed', 'stalled') else 'is'} {status_word(status)}"


def command() -> str:
    """How the shell in use calls this command."""
    return spelled("benchmax") or "benchmax"


def stop(message: str, code: int) -> NoReturn:
    """Say what is wrong and end."""
    stderr.print(f"[red]error[/] {safe(message)}")
    raise SystemExit(code)
