"""What a person sees while a model trains: a live table on a terminal, one line per step in a pipe.

Files and the wire count steps from 0; people are shown step 1 of 20 first.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmax import metrics
from benchmax.doctor.learning_signal import Signal
from benchmax.errors import plural
from benchmax.files.display import printable
from benchmax.trainer.display.plan import Plan

BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 40
ALERTS_SHOWN = 3
SOLVING_SECONDS = 15.0
"""Between two lines about a search for solutions, where lines cannot be redrawn."""


def open_view(steps: int) -> LiveView | PlainView:
    """The view that fits where stderr goes: a context manager that is called with events."""
    stream = sys.stderr
    return LiveView(steps, Console(file=stream)) if stream.isatty() else PlainView(steps, stream)


class PlainView:
    """Prints one line per step, alert or end."""

    def __init__(self, steps: int, stream: TextIO) -> None:
        self.steps = steps
        self.stream = stream
        self._fetching = False
        self._solving_printed = -math.inf

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.flush()

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        line = describe(kind, data, self.steps)
        if kind == "fetching":  # its progress is for terminals
            line, self._fetching = None if self._fetching else line, True
        if kind == "solving":
            line = self._now_and_then(data)
        for each in [*map(printable, block(kind, data)), *([line] if line else [])]:
            print(each, file=self.stream, flush=True)

    def _now_and_then(self, data: dict[str, Any]) -> str | None:
        """The line when a search begins, again while it lasts, and when all rows were tried."""
        if 0 < data["rows"] < data["of"] and time.monotonic() - self._solving_printed < SOLVING_SECONDS:
            return None
        self._solving_printed = time.monotonic()
        return _activity("solving", data)


def describe(kind: str, data: dict[str, Any], steps: int) -> str | None:
    """An event as one line of text; None when it has none."""
    describe_kind = partial(_metrics_line, steps=steps) if kind == "metrics" else _LINES.get(kind)
    line = describe_kind(data) if describe_kind else None
    return None if line is None else printable(line)


def short(value: float, digits: int = 3) -> str:
    """A reward for people, also when it is huge."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.{digits}g}"


def _metrics_line(data: dict[str, Any], steps: int) -> str:
    values = data["values"]
    length = _measured(values, "length {:.0f}", metrics.RESPONSE_TOKENS)
    if data["split"] in ("warm_start", "eval"):
        when = "the warm start" if data["split"] == "warm_start" else f"{data['step']} of {steps} steps"
        return _joined(f"eval after {when}", _reward(values), length)
    guided = f" +{values[metrics.GROUPS_GUIDED]:.0f}" if values.get(metrics.GROUPS_GUIDED) else ""
    return _joined(
        f"step {data['step'] + 1:>{len(str(steps))}}/{steps}",
        _reward(values),
        _measured(values, "pass@k {:.2f}", metrics.PASS_AT_K),
        length,
        _measured(values, f"groups {{:.0f}}/{{:.0f}}{guided}", metrics.GROUPS_USED, metrics.GROUPS),
        _measured(values, "loss {:+.4f}", metrics.LOSS),
        _measured(values, "{:.1f} + {:.1f} s", metrics.SAMPLE_SECONDS, metrics.UPDATE_SECONDS),
    )


def _reward(values: dict[str, float]) -> str:
    if metrics.REWARD not in values:
        return "reward unscored"
    parts = ", ".join(f"{part} {short(mean, 2)}" for part, mean in metrics.part_rewards(values).items())
    return _joined(
        f"reward {short(values[metrics.REWARD])}",
        _measured(values, "solved {:.0%}", metrics.SOLVE_RATE),
        f"unscored {values[metrics.UNSCORED]:.0%}" if values.get(metrics.UNSCORED) else "",
    ) + (f" ({parts})" if parts else "")


def _measured(values: dict[str, float], text: str, *names: str) -> str:
    """The text with these values in it; nothing where one was not measured, as other backends may measure less."""
    return text.format(*(values[name] for name in names)) if all(name in values for name in names) else ""


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def _warm_start_line(data: dict[str, Any]) -> str | None:
    if data["how"] == "off" or not data["steps"]:
        return f"no warm start: {data['why']}" if data["how"] == "none" else None
    gained = ""
    if data["after"] is not None and data["before"] is not None:
        gained = f"; held-out reward {short(data['before'], 2)} → {short(data['after'], 2)}"
    shown = {"gold": "solutions that earn", "hint": "answers given with the solution in sight"}.get(data["how"], "rows")
    return f"warm start: {data['rows']} {shown}, {data['steps']} supervised steps{gained}"


def _dose_line(data: dict[str, Any]) -> str:
    reward = "unscored" if data["reward"] is None else short(data["reward"], 2)
    return f"warm start, after dose {data['dose']}: reward {reward}, groups with signal {data['spread']:.0%}"


def _begins_line(data: dict[str, Any]) -> str:
    rows = f"{data['train']} rows, {data['held_out']} held out"
    return f"training {data['model']} on {data['device']} with {rows}; the run is kept in {data['run']}"


_LINES: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "alert": lambda data: f"ALERT {data['alert']} in step {data['step'] + 1}: {data['message']}",
    "begins": _begins_line,
    "chosen": lambda data: "; ".join(f"{each['name']} = {each['value']} ({each['why']})" for each in data["settings"]),
    "collapsed": lambda data: f"ENDED  {data['message']}",
    "dose": _dose_line,
    "ended": lambda data: f"ended after {plural(data['step'], 'step')} ({data['reason']}), {data['seconds']:.0f} s",
    "failed": lambda data: f"failed after {plural(data['step'], 'step')}",  # the command prints why, as its last line
    "fetching": lambda data: str(data["message"]),
    "mended": lambda data: f"MENDED {data['message']}",
    "note": lambda data: f"note  {data['message']}",
    "outage": lambda data: f"WAITS  {data['message']}",
    "resumed": lambda data: f"resumed after {plural(data['step'], 'step')}",
    "sft": lambda data: f"warm start {data['step'] + 1}/{data['steps']}  loss {data['loss']:.3f}",
    "stopping": lambda data: (
        f"stopping: {data['seconds']:.0f} s for what is under way, then it is saved; Ctrl-C again stops at once"
    ),
    "taught": lambda data: f"TAUGHT {data['message']}",
    "cooled": lambda data: f"COOLED {data['message']}",
    "warm_start": _warm_start_line,
}
"""Each event as one line."""


def block(kind: str, data: dict[str, Any]) -> list[str]:
    """Events that take more than a line: the signal of the first samples, and the plan."""
    shape: Any = {"signal": Signal, "plan": Plan}.get(kind)
    if shape is None:
        return []
    lines = shape(**{name: value for name, value in data.items() if name in shape.__dataclass_fields__}).lines()
    if kind == "signal":
        return ["can it learn?", *(f"  {line}" for line in lines)]
    return ["what will happen", *(f"  {name:<8} {text}" for name, text in lines)]


class LiveView:
    """A panel that is redrawn in place."""

    def __init__(self, steps: int, console: Console) -> None:
        self.steps = steps
        self.rewards: list[float] = []
        self.evals: list[tuple[int, float]] = []
        self.values: dict[str, float] = {}
        self.alerts: list[str] = []
        self.step = 0
        self.rollouts = 0
        self.note = "loading"
        self.run = ""
        self._began = time.monotonic()
        self._steps_seen = 0
        self._live = Live(self, console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        if kind in ("started", "metrics"):
            self.note = "sampling"  # what comes next, and the first rollout may take a while
        if kind == "begins":
            self.run = f"{data['model']} on {data['device']}, {data['train']} rows, in {data['run']}"
        elif kind == "metrics" and data["split"] == "train":
            self._add_step(data)
        elif kind == "metrics" and data["split"] == "eval":
            self.evals.append((data["step"], data["values"].get(metrics.REWARD, float("nan"))))
            self.rollouts = 0
        elif kind == "group":
            self.rollouts += len(data["rollouts"])
            self.note = f"{'evaluating' if data['split'] == 'eval' else 'sampling'}: {self.rollouts} rollouts"
        elif kind == "alert":
            self.alerts.append(printable(f"step {data['step'] + 1} {data['alert']}: {data['message']}"))
        elif kind in ("note", "mended", "taught", "cooled", "outage", "collapsed"):
            self.alerts.append(printable(data["message"]))
        elif lines := block(kind, data):
            for each in lines:
                self._live.console.print(Text(printable(each), style="dim" if each[:1] == " " else "bold"))
        elif kind in ("solving", "teaching"):
            self.note = _activity(kind, data)
        elif line := describe(kind, data, self.steps):
            self.note = line

    def _add_step(self, data: dict[str, Any]) -> None:
        self.values, self.step, self.rollouts = data["values"], data["step"] + 1, 0
        self._steps_seen += 1
        if metrics.REWARD in self.values:
            self.rewards.append(self.values[metrics.REWARD])

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for name, value in self._rows():
            table.add_row(Text(name, style="dim"), value)
        alerts = [Text(f"! {line}", style="yellow") for line in self.alerts[-ALERTS_SHOWN:]]
        return Group(ProgressBar(self.steps, self.step, width=60), table, *alerts)

    def _rows(self) -> list[tuple[str, Text]]:
        values = self.values
        rows = [("run", Text(self.run))] if self.run else []
        rows += [("step", Text(f"{self.step}/{self.steps}   {self._eta()}")), ("now", Text(self.note))]
        if self.rewards:
            rows.append(("reward", Text(f"{sparkline(self.rewards)} {short(self.rewards[-1])}", style="bold")))
        if self.evals:
            (begun, first), (step, last) = self.evals[0], self.evals[-1]
            rows.append(("held-out", Text(f"{short(first)} (after {begun} steps) → {short(last)} (after {step})")))
        shown = {
            "pass@k": _measured(values, "{:.2f}   solved {:.0%}", metrics.PASS_AT_K, metrics.SOLVE_RATE),
            "length": _measured(values, "{:.0f} tokens", metrics.RESPONSE_TOKENS),
            "speed": _joined(
                _measured(values, "{:.0f} tokens/s", metrics.TOKENS_PER_SECOND),
                _measured(values, " {:.1f} s + {:.1f} s a step", metrics.SAMPLE_SECONDS, metrics.UPDATE_SECONDS),
            ),
        }
        rows += [(name, Text(text)) for name, text in shown.items() if text]
        return rows

    def _eta(self) -> str:
        if not self._steps_seen:
            return ""
        left = (time.monotonic() - self._began) / self._steps_seen * (self.steps - self.step)
        return f"about {int(left // 60)}:{int(left % 60):02d} left"


def _activity(kind: str, data: dict[str, Any]) -> str:
    if kind == "solving":
        how = "looking for solutions" if data["how"] == "gold" else "asking the model with the solution in sight"
        return f"{how}: {data['found']} found, {data['rows']} of {data['of']} rows tried"
    return f"learning from solutions: step {data['step'] + 1}, loss {data['loss']:.3f}"


def sparkline(values: list[float]) -> str:
    """The last values as a row of bars, from the lowest to the highest of them."""
    shown = values[-BARS_SHOWN:]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(BARS[min(7, int((value - low) / span * 8))] for value in shown)
