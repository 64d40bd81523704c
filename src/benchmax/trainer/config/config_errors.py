"""An error in the settings as one line: the dotted name, what is allowed there, and what was given."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from benchmax.trainer.config.sections import TrainConfig

_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    list: "a list",
    dict: "a table",
}
_RANGES = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


_USUAL_NAMES = {
    "learning_rate": "optim.lr",
    "batch_size": "rollouts.prompts_per_step",
    "num_generations": "rollouts.group_size",
    "max_completion_length": "rollouts.max_new_tokens",
    "max_tokens_per_turn": "rollouts.max_new_tokens",
    "max_steps": "limits.steps",
    "beta": "algorithm.kl",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
}
"""What other trainers call these settings."""


def describe(issue: Mapping[str, Any], known: Sequence[str]) -> str:
    """One of pydantic's errors as one line; `known` are the names of all settings."""
    path = [str(part) for part in issue["loc"]]
    name = ".".join(path)
    if issue["type"] == "extra_forbidden":
        return f"{name}: there is no such setting{_guess(path, known)}"
    if issue["type"] == "value_error":
        message = str(issue["msg"]).removeprefix("Value error, ")
        return f"{name}: {message}" if path else message
    field = _field(path)
    if field is None:
        return f"{name}: give a table of settings, not {issue['input']!r}"
    return f"{'.'.join(path[:2])}: give {allowed(field)}, not {issue['input']!r}"


def allowed(field: FieldInfo) -> str:
    """What a setting may be: `a whole number of at least 2`, `one of std, mean`."""
    kinds = [kind for kind in _alternatives(field.annotation) if kind is not type(None)]
    words = " or ".join(_kind(kind) for kind in kinds)
    bounds = [
        f"{text} {getattr(each, mark):g}"
        for each in field.metadata
        for mark, text in _RANGES.items()
        if getattr(each, mark, None) is not None
    ]
    none = " or none" if len(kinds) < len(_alternatives(field.annotation)) else ""
    within = " and ".join(bounds)
    return words + (" of" if within.startswith("at ") else "") + (f" {within}" if within else "") + none


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _kind(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    words = _KINDS.get(origin or kind, "another value")
    inner = [{str: "texts", float: "numbers"}.get(each, "") for each in get_args(kind)][-1:]
    return f"{words} of {inner[0]}" if inner and inner[0] else words


def _field(path: Iterable[str]) -> FieldInfo | None:
    """The setting at the path; None where the path ends at a section."""
    model: Any = TrainConfig
    for part in path:
        field: FieldInfo | None = model.model_fields.get(part)
        if field is None:
            return None
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return field
        model = field.annotation
    return None


def _guess(path: Sequence[str], known: Sequence[str]) -> str:
    name, other = path[-1], _USUAL_NAMES.get(path[-1])
    by_leaf = [field for field in known if field.rpartition(".")[2] == name]
    close = [other] if other else by_leaf or difflib.get_close_matches(".".join(path), known, n=1, cutoff=0.7)
    if not close:  # a setting whose own name, without that of its section, is nearly this one: `step` is `limits.steps`
        leaves = {field.rpartition(".")[2]: field for field in known}
        close = [leaves[near] for near in difflib.get_close_matches(name, leaves, n=1, cutoff=0.7)]
    return f"; did you mean {close[0]}?" if close else "; `benchmax train --settings` lists all of them."
