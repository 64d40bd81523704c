"""`benchmax runs compare`: a run's latest evaluation beside another model's, example by example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from benchmax.cli.output import Json, new_table, print_json, print_table, safe, shorten, stderr
from benchmax.cli.platform.connection import RunId, platform
from benchmax.errors import plural


def compare(
    run_id: RunId,
    other: Annotated[
        str, typer.Argument(help="base, checkpoint:NAME, endpoint:ID, the id of an eval, or of another run.")
    ] = "base",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Examples shown; 0 for all.")] = 20,
    json: Json = False,
) -> None:
    """Compare a run's model with another on the held-out rows; an evaluation that is missing is made first."""
    with platform() as client:
        found = client.compare_run(run_id, other, say=lambda text: stderr.print(safe(text)))
    if json:
        print_json(found)
    else:
        _report(found, limit)


def interval_words(found: Mapping[str, Any]) -> str:
    """The difference as a line for people."""
    if found["low"] is None:
        return f"difference {found['delta']:+.3f}, on one example"
    return f"difference {found['delta']:+.3f}, 95 % between {found['low']:+.3f} and {found['high']:+.3f}"


def _report(found: Mapping[str, Any], limit: int) -> None:
    on = plural(found["examples"], "example")
    typer.echo(f"{found['verdict']}: reward {found['run']:.3f} against {found['other']:.3f} on {on}")
    typer.echo(interval_words(found))
    if found["components"]:
        print_table(_component_table(found["components"]))
    table = new_table("example", "prompt", "run", "other", "delta")
    for pair in found["pairs"][: limit or None]:
        numbers = (f"{pair['run']:.3f}", f"{pair['other']:.3f}", f"{pair['delta']:+.3f}")
        table.add_row(safe(pair["promptMessageId"][:10]), safe(shorten(pair["promptText"])), *numbers)
    print_table(table)


def _component_table(components: Iterable[Mapping[str, Any]]) -> Any:
    table = new_table("component", "run", "other", "delta", "95 % from", "to", "")
    for each in components:
        numbers = [f"{each['ours']:.3f}", f"{each['other']:.3f}", f"{each['delta']:+.3f}"]
        bounds = ["–" if each[name] is None else f"{each[name]:+.3f}" for name in ("ciLow", "ciHigh")]
        table.add_row(safe(shorten(each["name"], 40)), *numbers, *bounds, each["label"])
    return table
