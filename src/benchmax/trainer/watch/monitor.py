"""Checks every training step and evaluation with all alarms. An alarm that raised an alert is silent for one window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmax.trainer.config import WatchConfig
from benchmax.trainer.watch import response_alarms, reward_alarms, signal_alarms, update_alarms
from benchmax.trainer.watch.history import AlarmReason, Groups, History, Values, flat
from benchmax.trainer.watch.signal_alarms import count_silent_groups

ALARMS: tuple[Callable[[History, Groups], AlarmReason | None], ...] = (
    update_alarms.not_finite,
    reward_alarms.reward_collapse,
    reward_alarms.all_equal,
    update_alarms.entropy_collapse,
    update_alarms.entropy_blow_up,
    response_alarms.length_blow_up,
    response_alarms.all_cut_off,
    reward_alarms.component_saturated,
    response_alarms.repetition,
    response_alarms.too_long,
    signal_alarms.nothing_learned,
    signal_alarms.no_signal,
    update_alarms.drift,
    reward_alarms.not_moving,
    reward_alarms.unscored,
)
"""The alarms of a training step; each one's name is the kind of its alerts."""
HELD_OUT_ALARMS = (reward_alarms.held_out_collapse, reward_alarms.held_out_unscored)


class Alert(NamedTuple):
    """A finding to look at, with the alarm and the step that it comes from."""

    kind: str
    step: int
    message: str
    evidence: dict[str, Any]
    rollouts: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        found = self._asdict()
        found["alert"] = found.pop("kind")
        return found


class Monitor:
    """Sees every training step once."""

    def __init__(self, config: WatchConfig = WatchConfig()) -> None:
        self.history = History(config)
        self._raised: dict[str, int] = {}
        """The last step at which each alarm raised an alert."""

    def check_step(self, step: int, values: Values, groups: Groups) -> list[Alert]:
        """Take in one step; returns the alerts it raises."""
        history = self.history
        history.steps.append({**values, **count_silent_groups(groups)})
        for rollout in flat(groups):
            for name, value in rollout.rewards.items():
                history.component_maxima[name] = max(value, history.component_maxima.get(name, value))
        return self._raise(step, {alarm.__name__: alarm(history, groups) for alarm in ALARMS})

    def check_evaluation(self, step: int, best: float | None, now: float | None, groups: Groups) -> list[Alert]:
        """Take in one evaluation, made after `step`, and the best one before it."""
        return self._raise(step, {alarm.__name__: alarm(self.history, best, now, groups) for alarm in HELD_OUT_ALARMS})

    def _raise(self, step: int, found: Mapping[str, AlarmReason | None]) -> list[Alert]:
        """Alerts for the findings whose alarm has been silent for a window."""
        alerts = []
        for kind, finding in found.items():
            window_over = kind not in self._raised or step - self._raised[kind] >= self.history.config.window
            if finding is not None and window_over:
                self._raised[kind] = step
                alerts.append(Alert(kind, step, *finding))
        return alerts

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"history": self.history.steps, "rang": self._raised, "tops": self.history.component_maxima}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.history.steps, self._raised = list(state["history"]), dict(state["rang"])
        self.history.component_maxima = dict(state["tops"])
