"""How the parts of a composed environment are written and named, and to which of them an example belongs.

math,crm                two environments, drawn equally often
math=2,main.py:MyEnv    math is drawn twice as often

A part's name is the last word of what names it: `main.py:MyEnv` is MyEnv, `reasoning/leg_counting` is leg_counting.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.envs.types import Example
from benchmax.errors import UsageError

PART = "__env__"
"""The key of a task that holds the name of its part; an environment's own rows do not have it."""
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")
NAME_CHARS = 60
"""Of a folder's name, for the environments in it."""


def is_composed(spec: str) -> bool:
    """Whether what a person typed names several environments, and is not a file with a comma in its name."""
    file = spec.partition(":")[0]
    return "," in spec and not ("," in file and os.path.exists(file))


def split_parts(spec: str) -> dict[str, float]:
    """What names each environment, and its weight."""
    parts: dict[str, float] = {}
    texts = [each.strip() for each in spec.split(",")]
    named = [text for text in texts if text]
    if not named:
        raise UsageError("No environment is named. Write them with commas: math,crm.")
    if len(named) < len(texts):
        raise UsageError(f"{spec!r} has a comma with no environment beside it. Write {','.join(named)}.")
    for text in named:
        name, weight = _weighted(text)
        if name in parts:
            raise UsageError(f"{name!r} is named twice. Name it once; a weight draws it more often: {name}=2.")
        parts[name] = weight
    return parts


def _weighted(text: str) -> tuple[str, float]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    try:
        number = float(weight)
    except ValueError:
        raise UsageError(f"{text!r} is not NAME or NAME=WEIGHT. Write weights as numbers: math=2,crm=1.") from None
    return name.strip(), checked_weight(name.strip(), number)


def checked_weight(name: str, weight: Any) -> float:
    """The weight, when it is one."""
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not math.isfinite(weight) or weight <= 0:
        raise UsageError(f"The weight of {name!r} is {weight!r}. Give a number above 0, or leave the environment out.")
    return float(weight)


def spec_of(given: Any) -> str:
    """One text for what settings may hold: a text, a list of texts, or a table of weights."""
    if isinstance(given, Mapping):
        return ",".join(f"{name}={checked_weight(str(name), weight):g}" for name, weight in given.items())
    if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
        return ",".join(given)
    return given  # type: ignore[no-any-return]


def with_full_paths(spec: str) -> str:
    """The same environments, with the full path of every file: they mean the same from any folder."""
    if not is_composed(spec):
        file, colon, name = spec.partition(":")
        return f"{Path(file).absolute()}{colon}{name}" if file.endswith(".py") else spec
    return ",".join(f"{with_full_paths(part)}={weight:g}" for part, weight in split_parts(spec).items())


def part_name(spec: str, taken: Mapping[str, Any] = {}) -> str:
    """A short name for the environment that `spec` names, which no other part has."""
    file, _, name = spec.partition(":")
    if not name:
        name = Path(file).stem if file.endswith(".py") else re.split(r"[./]", file.rstrip("./"))[-1]
    short = re.sub(r"[^A-Za-z0-9_.@+-]+", "_", name) or "env"
    free = (short, *(f"{short}-{number}" for number in range(2, len(taken) + 3)))
    return next(each for each in free if each not in taken)


def short_name(spec: str) -> str:
    """What a folder of results is named after: `main.py:MyEnv` is main, `package.module.MyEnv` is MyEnv."""
    if is_composed(spec):
        return "-".join(part_name(part) for part in split_parts(spec))[:NAME_CHARS]
    file = spec.partition(":")[0]
    return (Path(file).stem if file.endswith(".py") else file.rpartition("/")[2].rpartition(".")[2]) or "run"


def check_name(name: str) -> str:
    """A part's name, which metrics, reward components and files contain."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a part. Use up to 64 letters, digits, dots, dashes and underscores.")
    return name


def part_of(example: Example | Mapping[str, Any]) -> str:
    """The part an example belongs to; empty when it belongs to an environment that is not composed."""
    task = example.get("task") or {}
    found = task.get(PART) if isinstance(task, Mapping) else None
    if found is None:
        found = (example.get("init_rollout_args") or {}).get(PART)
    return found if isinstance(found, str) else ""


def part_of_row(row: Any) -> str:
    """The part that a row of a dataset names."""
    found = row.get("env") if isinstance(row, Mapping) else None
    return found if isinstance(found, str) else ""


def mixed_part(row: Any) -> str:
    """The part of a row as `ComposedEnv.load_dataset` makes it; empty for any other row, whatever its columns mean."""
    return part_of_row(row) if isinstance(row, Mapping) and set(row) == {"env", "row"} else ""


def own_task(task: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A task as its part made it."""
    return {key: value for key, value in (task or {}).items() if key != PART} or None


def own_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`init_rollout_args` as the part made them."""
    return {key: value for key, value in arguments.items() if key != PART}
