"""`benchmax models`: what models are here, and getting more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmax.errors import NotFoundError

if TYPE_CHECKING:
    from benchmax.inference.download import Say
    from benchmax.inference.store import StoredModel

app = typer.Typer(help="Fetch, list and check models on this machine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A short name, a hub id (org/name), a directory or a .gguf file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def pull(name: Name, as_json: AsJson = False) -> None:
    """Fetch a model, once."""
    from benchmax.inference import store

    with progress(name) as say:
        path = store.resolve(name, say=say)
    card = store.read_card(path)
    if as_json:
        _print_json({"path": str(path), **(asdict(card) if card else {})})
    else:
        size = f" ({_size(card.bytes)}, {card.license})" if card else ""
        typer.echo(f"{name} is ready{size}: {path}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Show the models that are here, and those that can be fetched by a short name."""
    from benchmax.inference import store

    stored = store.list_models()
    if as_json:
        _print_json([{"path": str(model.path), **asdict(model.card)} for model in stored])
        return
    here = {model.card.name for model in stored}
    table = Table(box=None, header_style="bold")
    for column in ("name", "model", "parameters", "size", "licence", "source"):
        table.add_column(column, justify="right" if column in ("parameters", "size") else "left")
    for model in stored:
        table.add_row(*map(escape, _row(model)))
    for known in store.KNOWN.values():
        if known.name not in here:
            fetch = f"{_size(known.wheel.download_bytes)} to fetch"
            table.add_row(known.name, known.title, "", fetch, known.license, "not here yet")
    Console().print(table)


@app.command()
def rm(name: Annotated[str, typer.Argument(help="A name shown by `benchmax models list`.")]) -> None:
    """Delete a model from this machine."""
    from benchmax.inference import store

    typer.echo(f"Removed {name}: {_size(store.remove(name))} freed.")


@app.command()
def path(name: Name) -> None:
    """Print the directory of a model that is here."""
    from benchmax.inference import store

    if name in store.KNOWN and name not in {model.card.name for model in store.list_models()}:
        raise NotFoundError(f"{name} is not here yet. Run: benchmax models pull {name}")
    typer.echo(store.resolve(name))


@app.command()
def audit(name: Name, as_json: AsJson = False) -> None:
    """Check that a model's chat template keeps tokens exact, turn by turn, and lets no data forge a turn."""
    from benchmax.inference import store
    from benchmax.inference.audit import audit_chat_template
    from benchmax.inference.tokens import ChatTokens

    with progress(name) as say:
        directory = store.resolve(name, say=say)
    findings = audit_chat_template(ChatTokens(directory))
    bad = sum(finding.matters for finding in findings)
    if as_json:
        _print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark = "!" if finding.matters else "·"
            typer.echo(f"{mark} {finding.case}, turn {finding.turn} ({finding.kind}): {finding.why}")
            typer.echo(f"    template  {finding.expected[:300]!r}\n    got       {finding.got[:300]!r}")
        typer.echo(f"{name}: {bad} that matter, {len(findings) - bad} to know of.")
    if bad:
        raise typer.Exit(1)


@contextmanager
def progress(name: str) -> Iterator[Say]:
    """A live line on a terminal's standard error; one plain line anywhere else."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(escape(name)) as status:
            yield lambda what: status.update(escape(what))
        return
    lines: list[str] = []

    def once(what: str) -> None:
        if not lines:
            lines.append(what)
            console.print(f"{name}: {what}", markup=False, highlight=False, soft_wrap=True)

    yield once


def _row(model: StoredModel) -> tuple[str, ...]:
    card = model.card
    return card.name, card.title, f"{card.parameters / 1e6:.1f} M", _size(card.bytes), card.license, card.source


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
