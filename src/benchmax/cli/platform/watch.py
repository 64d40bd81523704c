"""`benchmax runs watch`: a run as it goes, one live line on a terminal, plain lines anywhere else.

The feed says *that* there is something new; the numbers are then asked for. So a run that is far along costs one
question, not one for each step it has done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.live import Live
from rich.text import Text

from benchmax import metrics
from benchmax.cli.exit_codes import FAILED, INTERRUPTED
from benchmax.cli.output import Json, ended_words, print_json_line, safe, stderr, visible
from benchmax.cli.platform.connection import RunId, platform
from benchmax.platform.sdk.client import TrainerClient
from benchmax.trainer.display.view import sparkline

REWARD = metrics.REWARD


def watch(run_id: RunId, json: Json = False) -> None:
    """Follow a run until it ends. Ctrl-C stops watching, not the run. The exit code is 1 unless it completes."""
    with platform() as client:
        advice = f"No longer watching. The run continues; stop it with: benchmax stop {safe(run_id)}"
        run = watch_to_end(client, run_id, advice, json)
    stderr.print(f"{safe(run['name'])} {ended_words(run['status'])}. {safe(run['statusReason'])}")
    if run["status"] != "complete":
        raise typer.Exit(FAILED)


def watch_to_end(client: TrainerClient, run_id: str, advice: str, json: bool = False) -> dict[str, Any]:
    """Show a run until it has ended; Ctrl-C ends the command with this advice."""
    run = client.get_run(run_id)
    try:
        with shown(json) as show:
            follow(client, run, show)
    except KeyboardInterrupt:
        stderr.print(advice)
        raise typer.Exit(INTERRUPTED) from None
    return client.get_run(run_id)


Show = Callable[[Mapping[str, Any]], None]
"""Called with each event: `{type, message, …}`, or a point `{type: "point", mode, step, reward}`."""


def follow(client: TrainerClient, run: Mapping[str, Any], show: Show) -> None:
    """Pass everything a run does to `show`, until it ends."""
    rewards = _Rewards(client, run)
    for event in client.stream_run(run["id"]):
        if event["type"] == "points":
            for point in rewards.up_to(event["data"]):
                show(point)
        elif event["category"] != "feed":
            show(event)


class _Rewards:
    """Each reward of a run once, and none before the feed has come to its step."""

    def __init__(self, client: TrainerClient, run: Mapping[str, Any]) -> None:
        self._client = client
        self._run = run
        self._known: dict[str, list[dict[str, Any]]] = {}
        self._shown: dict[str, int] = {}

    def up_to(self, steps: Mapping[str, int]) -> list[dict[str, Any]]:
        """What was not printed yet, up to a step of each mode; an evaluation before the step it comes before."""
        fresh = [point for mode, step in steps.items() for point in self._fresh(mode, step)]
        return sorted(fresh, key=lambda point: (point["step"], point["mode"] == "train"))

    def _fresh(self, mode: str, step: int) -> list[dict[str, Any]]:
        last = self._shown.get(mode, -1)
        if step <= last:
            return []
        fresh = [point for point in self._points(mode, step) if last < point["step"] <= step]
        if fresh:
            self._shown[mode] = fresh[-1]["step"]
        total = self._run.get("totalSteps")
        return [
            {"type": "point", "mode": mode, "step": point["step"], "totalSteps": total, "reward": point["value"]}
            for point in fresh
        ]

    def _points(self, mode: str, step: int) -> list[dict[str, Any]]:
        """All points of a mode that there are; asked for again when `step` is not among them."""
        known = self._known.get(mode)
        if not known or known[-1]["step"] < step:
            known = self._known[mode] = self._client.get_run_scalars(self._run["id"], mode).get(REWARD, [])
        return known


def line(news: Mapping[str, Any]) -> str:
    """One event as a line for people."""
    if news["type"] != "point":
        return visible(news["message"] or news["type"])
    if news["mode"] == "train":
        of = f"/{news['totalSteps']}" if news["totalSteps"] else ""
        return f"step {news['step'] + 1}{of}: reward {news['reward']:.3f}"
    return f"{news['mode']} at step {news['step']}: reward {news['reward']:.3f}"


@contextmanager
def shown(json: bool = False) -> Iterator[Show]:
    """What shows a run's news: JSON lines, plain lines in a pipe, or one live line."""
    if json:
        yield print_json_line
    elif not stderr.is_terminal:
        yield lambda news: stderr.print(line(news), markup=False)
    else:
        rewards: list[float] = []

        def show(news: Mapping[str, Any]) -> None:
            """The reward as a row of bars that grows; all other news above it."""
            if news["type"] == "point" and news["mode"] == "train":
                rewards.append(news["reward"])
                live.update(Text(f"{line(news)} {sparkline(rewards)}", no_wrap=True, overflow="ellipsis"))
            else:
                live.console.print(line(news), markup=False)

        with Live(Text("waiting for the first step"), console=stderr, refresh_per_second=8, transient=True) as live:
            yield show
