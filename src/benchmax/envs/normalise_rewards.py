"""What counts as a reward: a finite float, or unscored with a reason.

Reward code is written by users and returns anything. It is checked here, once, before a number reaches a baseline: a
value that cannot be used becomes a reason that names its type and the fix.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

from benchmax import limits
from benchmax.envs.types import Unscored
from benchmax.errors import clean, describe_cause, describe_error

WHOLE = "reward"
"""The name under which a result without usable names is reported."""

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
    """The value as a finite float, or the reason why it is not one."""
    if isinstance(value, Unscored):
        return Unscored(_reason(value.reason) or f"Reward {name!r} was left unscored without a reason.")
    close_coroutines(value)
    value = _scalar(value)
    if not isinstance(value, int | float):
        return Unscored(f"Reward {name!r} is a {type(value).__name__}, not a number; {_fix(value)}.")
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
        fix = "await it" if inspect.iscoroutine(raw) else 'return a dict of named numbers such as {"correct": 1.0}'
        return {}, {WHOLE: f"The reward is a {type(raw).__name__}; {fix}."}
    try:
        items = list(raw.items())
    except Exception as error:
        return {}, {WHOLE: f"The reward mapping could not be read: {describe_cause(error)}. Return a plain dict."}
    for _, value in items:
        close_coroutines(value)
    scored: dict[str, float] = {}
    unscored: dict[str, str] = {}
    for key, value in items[: limits.REWARD_COMPONENTS]:
        problem = name_problem(key)
        outcome = finite(key, value) if problem is None else Unscored(problem)
        if isinstance(outcome, Unscored):
            unscored[_label(key)] = outcome.reason
        else:
            scored[key] = outcome
    if len(items) > limits.REWARD_COMPONENTS:
        unscored[WHOLE] = (
            f"The reward has {len(items)} components; at most {limits.REWARD_COMPONENTS} are kept. Return fewer."
        )
    return scored, unscored


def name_problem(key: Any) -> str | None:
    """Why this cannot name a reward component, or None."""
    if not isinstance(key, str):
        return f"A reward name has the type {type(key).__name__}; use a string."
    if len(key) > limits.REWARD_NAME_CHARS:
        return f"A reward name has {len(key)} characters; use at most {limits.REWARD_NAME_CHARS}."
    if not _NAME.fullmatch(key) or not key.strip():
        return "A reward name may hold letters, digits, '_', '.', '/', '-' and spaces; rename it."
    return None


def close_coroutines(value: Any) -> None:
    """Close coroutines that nobody will await, one level deep, so that they do not warn later."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else [value]
    for part in inner:
        if inspect.iscoroutine(part):
            try:
                part.close()
            except Exception:  # it is running already, or refuses to stop
                pass


def _scalar(value: Any) -> Any:
    """The number in an array without dimensions (numpy, torch); anything else as it is."""
    try:
        return value.item() if not isinstance(value, int | float) and tuple(value.shape) == () else value
    except Exception:
        return value


def _fix(value: Any) -> str:
    return "await it" if inspect.iscoroutine(value) else _FIXES.get(type(value).__name__, "return a plain number")


def _label(key: Any) -> str:
    """A name that is safe to record, for a key that may not be."""
    if name_problem(key) is None:
        return str(key)
    text = key[: limits.REWARD_NAME_CHARS] if isinstance(key, str) else type(key).__name__
    return re.sub(r"[^\w./ -]", "_", text).strip() or WHOLE


def _reason(reason: Any) -> str:
    return clean(reason) if isinstance(reason, str) else f"(a {type(reason).__name__} instead of a text)"
