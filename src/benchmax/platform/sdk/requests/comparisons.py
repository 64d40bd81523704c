"""A run's latest evaluation beside another model's, or another run's, example by example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from benchmax.errors import UsageError
from benchmax.platform.sdk.calls import Request, Row, as_object, get, run_path
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.requests.runs import ENDED, PAGE, get_run, list_external_evals, start_external_eval

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

POLL_SECONDS = 1.0
_MODELS = ("base", "checkpoint", "endpoint")
"""Prefixes of a model that can be evaluated."""


async def compare_run(
    exchange: Exchange, run_id: str, other: str = "base", *, say: Callable[[str], object] = lambda text: None
) -> Row:
    """`{verdict, examples, run, other, delta, low, high, components, pairs}` on the held-out rows, worst pair first.

    `other` is `base`, `checkpoint:NAME`, `endpoint:ID`, or the id of an eval or of another run. A missing
    evaluation is started first, which `say` reports.
    """
    if await _is_run(exchange, other):
        side = {"other_run_id": other}
    else:
        side = {"external_eval_id": await _evaluation(exchange, run_id, other, say)}
    found = _paired(await get_whole_comparison(exchange, run_id, **side))
    components = (await exchange.ask(get_comparison_summary(run_id, **side)))["components"]
    return {**found, "components": [each for each in components if each["name"] != "reward"]}


async def _is_run(exchange: Exchange, other: str) -> bool:
    """Whether `other` is the id of a run that the caller may see, archived or not."""
    if other.partition(":")[0] in _MODELS:
        return False
    try:
        await exchange.ask(get_run(other))
    except TrainerError as error:
        if error.status_code != 404:
            raise
        return False
    return True


async def _evaluation(exchange: Exchange, run_id: str, other: str, say: Callable[[str], object]) -> str:
    """The id of a finished evaluation: the one named, the newest of that model, or a new one."""
    known = await exchange.ask(list_external_evals(run_id))
    named = [each for each in known if each["id"] == other]
    fitting = named or [each for each in known if each["model"] == other and each["status"] not in ENDED - {"complete"}]
    if not fitting:
        if other.partition(":")[0] not in _MODELS:
            raise UsageError(f"There is no eval or run {other!r}. Use base, checkpoint:NAME, endpoint:ID or an id.")
        say(f"Evaluating {other} on the run's held-out rows.")
        fitting = [await exchange.ask(start_external_eval(run_id, other))]
    return await _finished(exchange, run_id, fitting[-1]["id"])


async def _finished(exchange: Exchange, run_id: str, eval_id: str) -> str:
    def own(rows: list[Row]) -> Row:
        return next(each for each in rows if each["id"] == eval_id)

    rows = await exchange.poll(list_external_evals(run_id), lambda rows: own(rows)["status"] in ENDED, POLL_SECONDS)
    found = own(rows)
    if found["status"] != "complete":
        raise TrainerError(f"The evaluation ended as {found['status']}: {found['statusReason']}")
    return eval_id


def _paired(found: Mapping[str, list[Row]]) -> Row:
    """The examples that both have a score for, both means, the mean difference with its 95 % interval, the verdict."""
    from benchmax.evaluation.compare import difference

    others = {row["promptMessageId"]: row["meanReward"] for row in found["compGroups"]}
    pairs = []
    for row in found["modelGroups"]:
        mean, other = row["meanReward"], others.get(row["promptMessageId"])
        if mean is not None and other is not None:
            example = {"promptMessageId": row["promptMessageId"], "promptText": row["promptText"]}
            pairs.append({**example, "run": mean, "other": other, "delta": mean - other})
    whole = difference([(pair["other"], pair["run"]) for pair in pairs])
    if whole is None:
        raise UsageError("The two share no scored example. Compare models that were evaluated on the same rows.")
    low, high = whole.delta.bounds
    interval = {"delta": whole.delta.mean, "low": low, "high": high}
    means = {"examples": len(pairs), "run": whole.other, "other": whole.base}
    return {"verdict": whole.verdict, **means, **interval, "pairs": sorted(pairs, key=lambda pair: pair["delta"])}


def get_comparison(
    run_id: str,
    external_eval_id: str | None = None,
    *,
    other_run_id: str | None = None,
    page: int = 1,
    limit: int = 50,
) -> Request[Row]:
    """`{modelGroups, compGroups, total}`: the run's latest eval beside another model's, or another run's latest."""
    query = {"externalEvalId": external_eval_id, "otherRunId": other_run_id, "page": page, "limit": limit}
    return get(run_path(run_id, "rollouts/comparison"), as_object, **query)


async def get_whole_comparison(
    exchange: Exchange, run_id: str, external_eval_id: str | None = None, *, other_run_id: str | None = None
) -> Row:
    """The same with every example, as one page."""
    whole: Row = {"modelGroups": [], "compGroups": [], "page": 1, "limit": PAGE, "total": 1}
    page = 1
    while (page - 1) * PAGE < whole["total"]:
        asked = get_comparison(run_id, external_eval_id, other_run_id=other_run_id, page=page, limit=PAGE)
        found = await exchange.ask(asked)
        whole["modelGroups"] += found["modelGroups"]
        whole["compGroups"] += found["compGroups"]
        whole["total"] = found["total"]
        page += 1
    return whole | {"limit": max(PAGE, whole["total"])}


def get_comparison_summary(
    run_id: str, external_eval_id: str | None = None, *, other_run_id: str | None = None
) -> Request[Row]:
    """`{n, components}`: the run's latest eval against another's, each component paired by example."""
    query = {"externalEvalId": external_eval_id, "otherRunId": other_run_id}
    return get(run_path(run_id, "rollouts/comparison/summary"), as_object, **query)
