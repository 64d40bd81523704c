"""Runs: lists, details, logs, metrics, evaluations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from benchmax import config, retries
from benchmax.platform.sdk.calls import EventStream, Request, Row, as_object, delete, get, post, rows_in, run_path
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.wire import values

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

ENDED = frozenset[str](values.ENDED | {"out_of_credits", "billing_error"})
"""Statuses that a run does not leave by itself, those of the hosted platform among them."""
PAGE = 1000
"""The most rows a server returns at once."""
_FEED_TRIES = 6
_FEED_SECONDS = 60.0


def page_url(base_url: str, run_id: str) -> str:
    """A run's page in the console of a platform."""
    hosted = base_url == config.hosted_url()
    base = config.web_app_url() if hosted or config.setting("WEB_APP_URL") else base_url
    return f"{base}/experiments/{run_id}"


async def list_runs(exchange: Exchange, *, include_config: bool = False) -> list[Row]:
    """All your runs, newest first."""
    found: dict[str, Row] = {}
    while True:
        known = len(found)
        query = {"includeConfig": include_config or None, "offset": known or None}
        page = await exchange.ask(get("/v1/train/runs", rows_in("runs"), **query))
        found |= {run["id"]: run for run in page}  # one that was launched meanwhile moves others to the next page
        if len(page) < PAGE or len(found) == known:
            return list(found.values())


def get_run(run_id: str, *, include_config: bool = False) -> Request[Row]:
    """One run."""
    return get(run_path(run_id), as_object, includeConfig=include_config or None)


def get_run_details(run_id: str) -> Request[Row]:
    """The run with `latestStep`, `modes` and `errorCount`."""
    return get(run_path(run_id, "details"), as_object)


def get_run_events(run_id: str) -> Request[list[Row]]:
    """What happened, oldest first."""
    return get(run_path(run_id, "events"), rows_in("events"))


def get_run_scalars(run_id: str, mode: str) -> Request[dict[str, list[Row]]]:
    """Metrics as `{name: [{step, value}]}`; `{}` for a mode that the run does not have."""
    return get(run_path(run_id, "scalars"), as_object, mode=mode)


def get_run_config(run_id: str) -> Request[Row]:
    """The launch arguments, which of them were given, and every setting they became."""
    return get(run_path(run_id, "config"), as_object)


def get_run_system(run_id: str, *, limit: int = 720) -> Request[Row]:
    """`{points, now}`: what the run's processes used of the machine."""
    return get(run_path(run_id, "system"), as_object, limit=limit)


def get_run_logs(
    run_id: str, process: str = "child", *, level: str | None = None, after: int | str = 0, limit: int = PAGE,
    tail: bool = False,
) -> Request[Row]:  # fmt: skip
    """`{lines, nextCursor, more}` of one process (trainer, environment, child); pass `nextCursor` on as `after`."""
    query = {"process": process, "level": level, "after": after, "limit": limit, "tail": tail or None}
    return get(run_path(run_id, "logs"), as_object, **query)


async def iter_run_logs(
    exchange: Exchange, run_id: str, process: str = "child", *, level: str | None = None
) -> AsyncGenerator[Row]:
    """Every line one process has written so far."""
    after, more = "0", True
    while more:
        page = await exchange.ask(get_run_logs(run_id, process, level=level, after=after))
        for line in page["lines"]:
            yield line
        after, more = page["nextCursor"], page["more"]


async def iter_environment_logs(
    exchange: Exchange, run_id: str, *, rollout_id: str | None = None
) -> AsyncGenerator[Row]:
    """Everything the environment logged, oldest first."""
    cursor: str | None = "0"
    while cursor is not None:
        query = {"rolloutId": rollout_id, "limit": PAGE, "cursor": cursor}
        page = await exchange.ask(get(run_path(run_id, "environment-logs"), as_object, **query))
        for line in page["logs"]:
            yield line
        cursor = page.get("nextCursor")


async def get_environment_logs(exchange: Exchange, run_id: str, *, rollout_id: str | None = None) -> list[Row]:
    """Everything the environment logged, oldest first; `iter_environment_logs` yields it line by line."""
    return [line async for line in iter_environment_logs(exchange, run_id, rollout_id=rollout_id)]


async def stream_run(exchange: Exchange, run_id: str, last_event_id: int = 0) -> AsyncGenerator[Row]:
    """Events, metrics and rollouts as they come, until the run ends; reconnects where it was."""
    lost = 0
    while lost < _FEED_TRIES:
        if lost:
            await exchange.pause(retries.pause(lost, 0.5, 8.0))
        with suppress(_FeedLost):
            async with aclosing(exchange.events(_feed(run_id, last_event_id))) as events:
                async for event in events:
                    if event.get("type") == "end":
                        return
                    last_event_id, lost = event["id"], 0
                    yield event
        lost += 1
    raise TrainerError("The live feed broke off, and so did every attempt to resume it. Try again later.")


class _FeedLost(TrainerError):
    """The connection of a live feed is lost; the client opens another."""


def _feed(run_id: str, last_event_id: int) -> EventStream:
    return EventStream(
        "GET",
        run_path(run_id, "stream"),
        headers={"Last-Event-ID": str(last_event_id)},
        timeout=_FEED_SECONDS,
        broken=_FeedLost,
        refused=lambda status: _FeedLost if status in retries.BUSY else TrainerError,
    )


def change_run(run_id: str, **changes: Any) -> Request[Row]:
    """Change `name`, `tags`, `notes`, `pinned`, `archived` or `is_public`; what is not given stays."""
    return Request("PATCH", run_path(run_id), as_object, json=changes)


def cancel_run(run_id: str) -> Request[Row]:
    """Stop a run."""
    return post(run_path(run_id, "cancel"))


def resume_run(run_id: str) -> Request[Row]:
    """Queue a run that was cut off again."""
    return post(run_path(run_id, "resume"))


def delete_run(run_id: str) -> Request[Row]:
    """Delete a run and everything it recorded."""
    return delete(run_path(run_id))


def list_external_evals(run_id: str) -> Request[list[Row]]:
    """Evaluations of the run's models and of others on its eval rows."""
    return get(run_path(run_id, "external-eval"), rows_in("evals"))


def start_external_eval(run_id: str, model: str, *, name: str = "", **options: Any) -> Request[Row]:
    """Queue an evaluation of `base`, `checkpoint:<name>` or `endpoint:<id>`; options are `rows` and `samples`."""
    return post(run_path(run_id, "external-eval"), {"model": model, "name": name, **options})


def rescore_run(run_id: str, *, environment: str | None = None, name: str = "") -> Request[Row]:
    """Queue the latest eval's rollouts to be scored again, by the run's environment or another; returns the eval."""
    return post(run_path(run_id, "rescore"), {"environment": environment, "name": name})


async def metric_rows(exchange: Exchange, run_id: str, mode: str | None = None) -> list[Row]:
    """One row for each mode and step, with each metric under its name."""
    found: dict[tuple[str, int], Row] = {}
    modes = [mode] if mode else (await exchange.ask(get_run_details(run_id)))["modes"]
    for each in modes:
        for name, points in (await exchange.ask(get_run_scalars(run_id, each))).items():
            for point in points:
                step = point["step"]
                found.setdefault((each, step), {"mode": each, "step": step})[name] = point["value"]
    return [found[key] for key in sorted(found)]
