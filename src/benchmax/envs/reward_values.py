"""What counts as a reward: a finite float, or unscored with a reason. There is no third thing.

Reward code is written by users and returns anything. Here it is sorted, once, before a number reaches
a baseline: a value that cannot be trusted becomes a reason that names its type and the fix.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

from benchmax import limits
from benchmax.envs.types import Unscored

WHOLE = "reward"
"""The name under which a result that has no usable names is reported."""

_NAME = re.compile(r"[\w./ -]+")
_FIXES = {
    "NoneType": "return a number on every path",
    "str": "convert it with float()",
    "Decimal": "convert it with float()",
    "Fraction": "convert it with float()",
    "coroutine": "await it",
    "dict": "give each number its own name in the reward dict",
    "list": "reduce it to one number, for example its mean",
    "tuple": "reduce it to one number, for example its mean",
}


def finite(name: str, value: Any) -> float | Unscored:
    """The value as a finite float, or why it is not one."""
    if isinstance(value, Unscored):
        return Unscored(_clean(value.reason) or f"Reward {name!r} was left unscored without a reason.")
    close_coroutines(value)
    if not isinstance(value, int | float) and callable(getattr(value, "item", None)) and _shape(value) == ():
        value = _item(value)
    if not isinstance(value, int | float):
        return Unscored(_wrong_type(f"Reward {name!r}", value))
    try:
        number = float(value)
    except Exception as error:
        return Unscored(f"Reward {name!r} does not fit a float ({describe_error(error)}); keep rewards small.")
    if not math.isfinite(number):
        return Unscored(f"Reward {name!r} is {number}; return a finite number, or Unscored(reason) when there is none.")
    if abs(number) > limits.REWARD_SIZE:
        return Unscored(f"Reward {name!r} is {number:g}, beyond {limits.REWARD_SIZE:g}; keep rewards small.")
    return number


def normalise_rewards(raw: Any) -> tuple[dict[str, float], dict[str, str]]:
    """What a reward hook returned, as scored components and the reasons of the unscored ones."""
    if not isinstance(raw, Mapping):
        close_coroutines(raw)
        return {}, {WHOLE: _wrong_type("The reward", raw, 'return a dict of named numbers such as {"correct": 1.0}')}
    try:
        items = list(raw.items())
    except Exception as error:
        return {}, {WHOLE: f"The reward mapping could not be read: {describe_error(error)}. Return a plain dict."}
    scored: dict[str, float] = {}
    unscored: dict[str, str] = {}
    for key, value in items[: limits.REWARD_COMPONENTS]:
        if problem := name_problem(key):
            close_coroutines(value)
        outcome = finite(_label(key), value) if problem is None else Unscored(problem)
        if isinstance(outcome, Unscored):
            unscored[_label(key)] = outcome.reason
        else:
            scored[key] = outcome
    if len(items) > limits.REWARD_COMPONENTS:
        for _, value in items[limits.REWARD_COMPONENTS :]:
            close_coroutines(value)
        unscored[WHOLE] = (
            f"The reward has {len(items)} components; at most {limits.REWARD_COMPONENTS} are kept. Return fewer."
        )
    return scored, unscored


def name_problem(key: Any) -> str | None:
    """Why this cannot name a reward component, or None."""
    if not isinstance(key, str):
        return f"A reward name is a {type(key).__name__}; use a string."
    if len(key) > limits.REWARD_NAME_CHARS:
        return f"A reward name has {len(key)} characters; use at most {limits.REWARD_NAME_CHARS}."
    if not _NAME.fullmatch(key) or not key.strip():
        return "A reward name may hold letters, digits, '_', '.', '/', '-' and spaces; rename it."
    return None


def describe_error(error: BaseException) -> str:
    """The error as one bounded text; safe for errors that cannot even be printed."""
    try:
        message = str(error)
    except Exception:
        message = "(its message could not be read)"
    kind = type(error).__name__
    return _clean(f"{kind}: {message}" if message else kind)


def close_coroutines(value: Any) -> None:
    """Close coroutines nobody will await, one level deep, so that they do not warn later."""
    if inspect.iscoroutine(value):
        try:
            value.close()
        except Exception:  # already running, or it refuses to stop: not ours to fix
            pass
        return
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    for part in inner:
        if inspect.iscoroutine(part):
            close_coroutines(part)


def _shape(value: Any) -> Any:
    try:
        return tuple(value.shape)
    except Exception:
        return None


def _item(value: Any) -> Any:
    try:
        return value.item()
    except Exception:
        return value


def _wrong_type(subject: str, value: Any, fix: str | None = None) -> str:
    kind = type(value).__name__
    fix = "await it" if inspect.iscoroutine(value) else fix or _FIXES.get(kind, "return a plain number")
    return (
        f"{subject} is a {kind}, not a number; {fix}." if subject != "The reward" else f"{subject} is a {kind}; {fix}."
    )


def _label(key: Any) -> str:
    """A name that is safe to record, for a key that may not be."""
    if name_problem(key) is None:
        return str(key)
    text = key[: limits.REWARD_NAME_CHARS] if isinstance(key, str) else type(key).__name__
    return re.sub(r"[^\w./ -]", "_", text).strip() or WHOLE


def _clean(text: Any) -> str:
    if not isinstance(text, str):
        return f"(a {type(text).__name__} instead of a text)"
    return text[: limits.ERROR_CHARS].encode("utf-8", "replace").decode("utf-8")
