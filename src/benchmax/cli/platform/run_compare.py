"""`benchmax runs compare`: a run's latest evaluation beside another model's, example by example."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from benchmax.cli.output import (
    FAILED,
    Json,
    ended_words,
    new_table,
    print_json,
    print_table,
    safe,
    shorten,
    stderr,
)
from benchmax.cli.platform.connection import RunId, platform
from benchmax.errors import UsageError, plural
from benchmax.evaluation.compare import difference as difference_of
from benchmax.platform.sdk.client import TrainerClient
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.run import ENDED

_MODELS = ("base", "checkpoint", "endpoint")
"""How a model to be evaluated begins."""
POLL_SECONDS = 1.0


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
        side = other_side(client, run_id, other)
        pairs = paired(client, run_id, **side)
        components = client.get_comparison_summary(run_id, **side)["components"]
    _report(pairs, [each for each in components if each["name"] != "reward"], limit, json)


def other_side(client: TrainerClient, run_id: str, other: str) -> dict[str, str]:
    """What a run is compared with, as the client takes it: another run, or a finished evaluation of this one's rows."""
    if _is_run(client, other):
        return {"other_run_id": other}
    return {"external_eval_id": _evaluation(client, run_id, other)}


def _is_run(client: TrainerClient, other: str) -> bool:
    """Whether a run is meant that can be seen, archived ones too."""
    if other.partition(":")[0] in _MODELS:
        return False
    try:
        return bool(client.get_run(other))
    except TrainerError as error:
        if error.status_code != 404:
            raise
        return False


def _evaluation(client: TrainerClient, run_id: str, other: str) -> str:
    """The id of a finished evaluation: the one named, the newest of that model, or a new one."""
    known = client.list_external_evals(run_id)
    named = [each for each in known if each["id"] == other]
    fitting = named or [each for each in known if each["model"] == other and each["status"] not in ENDED - {"complete"}]
    if not fitting:
        if other.partition(":")[0] not in _MODELS:
            raise UsageError(f"There is no eval or run {other!r}. Use base, checkpoint:NAME, endpoint:ID or an id.")
        stderr.print(f"Evaluating {safe(other)} on the run's held-out rows.")
        fitting = [client.start_external_eval(run_id, other)]
    return _wait(client, run_id, fitting[-1]["id"])


def _wait(client: TrainerClient, run_id: str, eval_id: str) -> str:
    while True:
        (found,) = (each for each in client.list_external_evals(run_id) if each["id"] == eval_id)
        if found["status"] == "complete":
            return eval_id
        if found["status"] in ENDED:
            stderr.print(f"The evaluation {ended_words(found['status'])}: {safe(found['statusReason'])}")
            raise typer.Exit(FAILED)
        time.sleep(POLL_SECONDS)


def paired(client: TrainerClient, run_id: str, **side: str) -> list[dict[str, Any]]:
    """Examples that the latest evaluations of both have a score for, worst for the run first."""
    found = client.get_whole_comparison(run_id, **side)
    others = {row["promptMessageId"]: row["meanReward"] for row in found["compGroups"]}
    pairs = []
    for row in found["modelGroups"]:
        mean, other = row["meanReward"], others.get(row["promptMessageId"])
        if mean is not None and other is not None:
            example = {"promptMessageId": row["promptMessageId"], "promptText": row["promptText"]}
            pairs.append({**example, "run": mean, "other": other, "delta": mean - other})
    if not pairs:
        raise UsageError("The two share no scored example. Compare models that were evaluated on the same rows.")
    return sorted(pairs, key=lambda pair: pair["delta"])


def difference(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Both means, the mean difference with its 95 % interval, and the verdict."""
    found = difference_of([(pair["other"], pair["run"]) for pair in pairs])
    assert found is not None
    delta, known = found.delta, found.delta.n > 1  # one example says nothing about the others
    interval = {"delta": delta.mean, "low": delta.low if known else None, "high": delta.high if known else None}
    return {"verdict": found.verdict, "examples": len(pairs), "run": found.other, "other": found.base, **interval}


def interval_words(found: Mapping[str, Any]) -> str:
    """The difference as a line for people."""
    if found["low"] is None:
        return f"difference {found['delta']:+.3f}, on one example"
    return f"difference {found['delta']:+.3f}, 95 % between {found['low']:+.3f} and {found['high']:+.3f}"


def _report(pairs: list[dict[str, Any]], components: list[dict[str, Any]], limit: int, json: bool) -> None:
    found = difference(pairs)
    if json:
        print_json({**found, "components": components, "pairs": pairs})
        return
    typer.echo(
        f"{found['verdict']}: reward {found['run']:.3f} against {found['other']:.3f} on {plural(len(pairs), 'example')}"
    )
    typer.echo(interval_words(found))
    if components:
        print_table(_component_table(components))
    table = new_table("example", "prompt", "run", "other", "delta")
    for pair in pairs[: limit or None]:
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
