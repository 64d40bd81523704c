"""The trainer's events in words, and the category each is filed under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CATEGORIES = {
    "started": "lifecycle",
    "resumed": "lifecycle",
    "ended": "lifecycle",
    "failed": "diagnostic",
    "checkpoint": "artifact",
    "alert": "alert",
}
"""Kinds of event; the others are `diagnostic`."""


def event_text(kind: str, data: Mapping[str, Any]) -> str:
    """An event as a sentence; its kind where there is none for it, or its data are not those of benchmax's trainer."""
    try:
        return _sentences(data).get(kind, kind)
    except (LookupError, TypeError, ValueError, AttributeError):
        return kind


def _sentences(data: Mapping[str, Any]) -> dict[str, str]:
    step = data.get("step")
    chosen = [f"{each['name']} = {each['value']} ({each['why']})" for each in data.get("settings") or ()]
    return {
        "started": "Training began." if not step else f"Training began after {_steps(step)}.",
        "resumed": f"Training continued from the checkpoint of step {step}.",
        "checkpoint": f"Saved the checkpoint of step {step}.",
        "ended": f"Training ended after {_steps(step)}.",
        "chosen": f"Chosen: {'; '.join(chosen)}.",
        "signal": f"The first samples: {data.get('forecast')}",
        "dose": f"Warm start, dose {data.get('dose')}: {data.get('forecast')}",
        "warm_start": _warm_start_text(data),
        "plan": f"Planned: {_steps(data.get('steps'))} at most, about {data.get('step_seconds') or 0:.0f} s each.",
        "summary": f"The held-out reward was {_number(data.get('before'))} and is {_number(data.get('best'))} at best.",
    }


def _warm_start_text(data: Mapping[str, Any]) -> str:
    if not data.get("steps"):
        return f"No warm start: {data.get('why')}"
    gained = f"held-out reward {_number(data.get('before'))} → {_number(data.get('after'))}"
    return f"Warm start: {data.get('rows')} solutions, {_steps(data['steps'], 'supervised step')}; {gained}."


def _steps(count: Any, word: str = "step") -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _number(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "-"
