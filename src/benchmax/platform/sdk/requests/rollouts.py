"""Rollouts that a run recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from benchmax.platform.sdk.calls import Request, Row, as_is, as_object, get, part_of_path, rows_in, run_path
from benchmax.platform.sdk.requests.runs import PAGE

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange


def get_rollout_summary(
    run_id: str, *, mode: str = "eval", page: int = 1, limit: int = 50, external_eval_id: str | None = None
) -> Request[list[Row]]:
    """Examples with their mean reward at each step."""
    read = rows_in("data", "items", "results", "rollouts", "groups")
    query = {"mode": mode, "page": page, "limit": limit, "externalEvalId": external_eval_id}
    return get(run_path(run_id, "rollouts/summary"), read, **query)


def get_rollout_heatmap(
    run_id: str, prompt_message_id: str, *, mode: str = "eval", external_eval_id: str | None = None
) -> Request[list[Row]]:
    """`[{id, step, totalReward}]` of one example."""
    query = {"promptMessageId": prompt_message_id, "mode": mode, "externalEvalId": external_eval_id}
    return get(run_path(run_id, "rollouts/heatmap"), rows_in("data", "items", "results"), **query)


def get_rollout_details(run_id: str, rollout_id: str) -> Request[Row]:
    """One rollout in full."""
    return get(run_path(run_id, f"rollouts/{part_of_path(rollout_id)}/details"), as_object)


def get_rollout_mode_average(run_id: str, *, mode: str = "eval", external_eval_id: str | None = None) -> Request[Row]:
    """`{avg, …}` of a mode's rollouts."""
    return get(run_path(run_id, "rollouts/mode-average"), as_object, mode=mode, externalEvalId=external_eval_id)


def get_rollout_component_averages(run_id: str, *, mode: str = "eval") -> Request[Row | None]:
    """The mean of each component at the latest step; None when there is none."""
    return get(run_path(run_id, "rollouts/component-averages"), as_is, mode=mode)


def list_rollouts(
    run_id: str, *, mode: str = "eval", page: int = 1, limit: int = PAGE, external_eval_id: str | None = None
) -> Request[list[Row]]:
    """Index rows of rollouts, newest step first; `iter_rollouts` yields all of them."""
    query = {"mode": mode, "page": page, "limit": limit, "externalEvalId": external_eval_id}
    return get(run_path(run_id, "rollouts"), rows_in("data"), **query)


async def iter_rollouts(
    exchange: Exchange, run_id: str, *, mode: str = "eval", external_eval_id: str | None = None
) -> AsyncGenerator[Row]:
    """Index rows of all rollouts, newest step first."""
    page, more = 1, True
    seen: set[str] = set()  # what is recorded meanwhile moves others to the next page
    while more:
        found = await exchange.ask(list_rollouts(run_id, mode=mode, page=page, external_eval_id=external_eval_id))
        for row in found:
            if row["id"] not in seen:
                yield row
        seen.update(row["id"] for row in found)
        page, more = page + 1, len(found) == PAGE


async def rollout_rows(exchange: Exchange, run_id: str, mode: str, limit: int) -> list[Row]:
    """Index rows of up to `limit` rollouts, each reward component as `reward/<name>`."""
    rows: list[Row] = []
    async with aclosing(iter_rollouts(exchange, run_id, mode=mode)) as found:
        async for row in found:
            if len(rows) == limit:
                break
            components = row.pop("rewards", {})
            rows.append(row | {f"reward/{name}": value for name, value in components.items()})
    return rows
