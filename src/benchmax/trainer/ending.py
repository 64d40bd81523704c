"""What ends a run: its steps or time are used up, it has learned all there is, or it gets no better.

The loop asks `reason_to_end` before each step; `ending_again` finds out whether a resumed run would end at once for the
same reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmax.files.jsonl import read_jsonl
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.progress import Progress
from benchmax.trainer.rundir import read_config, read_status

SETTING_OF_REASON = {
    "steps": ("limits", "steps"),
    "time": ("limits", "seconds"),
    "patience": ("eval", "patience"),
    "target": ("eval", "target"),
    "solved": ("eval", "stop_solved"),
    "collapsed": ("watch", "mends"),
}
"""The setting behind each reason for which a run ends."""


def reason_to_end(progress: Progress, config: TrainConfig, seconds_left: float) -> str | None:
    """The first reason to take no further step; None when there is none."""
    evaluation = config.eval
    if evaluation.target is not None and progress.last is not None and progress.last >= evaluation.target:
        return "target"
    if evaluation.stop_solved and progress.all_solved:
        return "solved"
    if evaluation.patience is not None and progress.stale >= evaluation.patience:
        return "patience"
    if progress.step >= config.limits.steps:
        return "steps"
    return "time" if seconds_left <= 0 else None


class Ending(NamedTuple):
    """A setting that ended a run after some steps."""

    steps: int
    setting: str
    value: str
    enough: str
    """A value of it with which the run trains on."""


def ending_again(run: Path, changes: Mapping[str, Any]) -> Ending | None:
    """What would end a complete run again at once; None when, with these changes, there is something left to do."""
    status = read_status(run)
    if status.get("state") != "complete":
        return None
    reason = status.get("reason", "steps")
    if reason not in SETTING_OF_REASON:  # one of another trainer's own
        return None
    section, name = SETTING_OF_REASON[reason]
    limit = getattr(getattr(read_config(run), section), name)
    reached = {"steps": status["step"], "time": _seconds(run), "solved": True}.get(reason, limit)
    # The saved limit may be another than ended the run: a resume that failed before its first step has changed it.
    asked = changes.get(section, {}).get(name, limit)
    # A value that is no number is refused later, with what is allowed.
    ends = asked == reached if isinstance(asked, bool) else isinstance(asked, int | float) and asked <= reached
    if not ends:
        return None
    value = str(limit) if isinstance(limit, bool) else f"{limit:.10g}"
    enough = {"target": "none", "solved": "false"}.get(reason) or math.ceil(2 * reached) or 1
    return Ending(status["step"], f"{section}.{name}", value, str(enough))


def _seconds(run: Path) -> float:
    """How long the run has trained: a little longer than its limit, because the last step is not cut off."""
    lines = read_jsonl(run / "events.jsonl")
    ends = [line["seconds"] for line in lines if line["kind"] == "ended" and "seconds" in line]
    return float(ends[-1]) if ends else 0.0
