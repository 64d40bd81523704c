"""A run's reward curve as a picture (PNG or SVG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax import metrics
from benchmax.errors import UsageError
from benchmax.trainer.rundir import check_run, read_metrics

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind people can tell apart too."""


def plot_run(run: Path, out: Path, *, title: str | None = None) -> Path:
    """Draw the mean reward of training and held-out rows over the steps, and that of each part of a composed run."""
    check_run(run)
    lines = read_metrics(run)
    if not any(metrics.REWARD in line["values"] for line in lines):
        raise UsageError(f"{run} has no rewards yet. Plot it after its first step.")
    return plot_metrics(lines, out, title=title or run.name)


def plot_metrics(lines: Sequence[Mapping[str, Any]], out: Path, *, title: str) -> Path:
    """Draw metric lines; the name of `out` decides the format."""
    if out.suffix not in (".png", ".svg"):
        raise UsageError(f"{out} is neither .png nor .svg. Give the picture one of those names.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    train, held_out = series(lines, "train", metrics.REWARD), series(lines, "eval", metrics.REWARD)
    axes.plot(*train, color=COLOURS[0], label="training: mean reward")
    axes.plot(*series(lines, "train", metrics.PASS_AT_K), color=COLOURS[2], linestyle=":", label="training: pass@k")
    if held_out[0]:
        axes.plot(*held_out, color=COLOURS[1], marker="o", label="held-out: mean reward")
    parts = dict.fromkeys(part for line in lines for part in metrics.part_rewards(line["values"]))
    for number, part in enumerate(parts):
        colour = COLOURS[(number + 3) % len(COLOURS)]
        axes.plot(
            *series(lines, "eval" if held_out[0] else "train", metrics.of_part(part, metrics.REWARD)),
            color=colour, linestyle="--", label=part,
        )  # fmt: skip
    axes.set(xlabel="updates", ylabel="reward", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return out


def series(lines: Sequence[Mapping[str, Any]], split: str, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric."""
    points = [
        (line["step"], line["values"][name]) for line in lines if line["split"] == split and name in line["values"]
    ]
    return [step for step, _ in points], [value for _, value in points]
