"""Launching a run: what is sent, what comes back, and the check of the launch arguments."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from benchmax.envs.datasets.readers import FORMATS
from benchmax.errors import ConfigError
from benchmax.platform.wire.base import JsonObject, PlainText, Wire
from benchmax.trainer.backend import EMBEDDED

RUN_PATHS = ("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path")
"""The four paths of a launch, inside its `args`."""

SERVER_CONTROLLED = frozenset(
    {
        "save", "load", "global_batch_size", "rollout_batch_size", "max_response_len",
        "eval_group_size", "eval_max_rollout_len", "eval_max_turns", "eval_max_tool_calls",
    }
)  # fmt: skip
"""Launch arguments the server sets by itself."""

OTHER_NAMES = {"max_response_len": "max_rollout_len", "max_context_tokens": "max_rollout_len"}
"""Names that other versions of the API use for an argument."""

WHEN_HIGH = {"learning_rate": "training may diverge", "max_rollout_len": "it may not fit in memory"}
"""What may happen above an argument's `warn_above`; the console has the same texts."""


class LaunchArg(Wire):
    """One launch argument: what it is, its default here, and its range."""

    name: str
    label: str
    type: Literal["string", "number", "integer", "boolean"]
    required: bool = False
    description: str
    default: Any = None
    min: float | None = None
    max: float | None = None
    warn_above: float | None = None
    enum: list[str] | None = None


class LaunchArgs(Wire):
    args: list[LaunchArg]


class LaunchRequest(Wire):
    type: str = Field(default="simple", max_length=40)
    name: PlainText | None = Field(default=None, max_length=300)
    args: JsonObject
    """The four paths and the launch arguments, in snake_case."""
    extra_secrets: dict[str, str] = Field(default={}, max_length=50)
    """Environment variables for this run alone; kept encrypted, never returned."""


class Launched(Wire):
    run_id: str
    warnings: list[str] = []


def check_launch_args(specs: Iterable[LaunchArg], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a run, defaults filled in, and warnings; ConfigError lists every mistake at once.

    An argument that is null was not given. The models of another backend are known to it alone.
    """
    known = {spec.name: spec for spec in specs}
    if given.get("backend") not in (None, EMBEDDED):
        known["model"] = known["model"].model_copy(update={"enum": None})
    wrong, warnings = [], []
    args = {spec.name: spec.default for spec in known.values()}
    for name, value in given.items():
        if name in SERVER_CONTROLLED:
            other = OTHER_NAMES.get(name)
            wrong.append(f"{name} is set by the server; {f'{other} is yours to set' if other else 'leave it out'}")
        elif name not in known:
            wrong.append(f"there is no launch argument {name[:80]!r}; {_hint(name, known)}")
        elif fault := _fault(known[name], value):
            wrong.append(f"{name} {fault}")
        elif value is not None:
            args[name] = value
            limit = known[name].warn_above
            if limit is not None and value > limit:
                why = WHEN_HIGH.get(name, "this may be too much")
                warnings.append(f"{name} = {value:g} is above {limit:g}; {why}.")
    wrong += [f"{spec.name} is required" for spec in known.values() if spec.required and args[spec.name] is None]
    if wrong:
        said = "; ".join(wrong)
        raise ConfigError(f"The launch arguments have mistakes: {said}{'' if said.endswith('?') else '.'}")
    return args, warnings


def _hint(name: str, known: Collection[str]) -> str:
    other = OTHER_NAMES.get(name)
    close = [other] if other in known else difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else "`benchmax launch --list-args` lists them"


def _fault(spec: LaunchArg, value: Any) -> str | None:
    if value is None:
        return None
    if spec.type in ("integer", "number"):
        number = isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
        if not number or (spec.type == "integer" and value != int(value)):
            return f"must be {'a whole' if spec.type == 'integer' else 'a'} number, not {str(value)[:80]!r}"
        if (spec.min is not None and value < spec.min) or (spec.max is not None and value > spec.max):
            return f"must be from {_plain(spec.min)} to {_plain(spec.max)}, not {value:g}"
        return None
    if spec.type == "boolean":
        return None if isinstance(value, bool) else f"must be true or false, not {str(value)[:80]!r}"
    if not isinstance(value, str):
        return f"must be text, not {str(value)[:80]!r}"
    if spec.enum and value not in spec.enum:
        more = "; `benchmax models add` on the platform's machine adds others" if spec.name == "model" else ""
        return f"must be one of {', '.join(spec.enum)}, not {value[:80]!r}{more}"
    return None


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def _plain(bound: float | None) -> str:
    return "any" if bound is None else f"{bound:g}"


class ForkRequest(Wire):
    checkpoint: str = Field(default="best", max_length=40, pattern=r"^(best|latest|step-\d{1,9})$")
    args: JsonObject = Field(default={})
    """Launch arguments to change."""
    name: PlainText | None = Field(default=None, min_length=1, max_length=300)


class RescoreRequest(Wire):
    environment: str | None = Field(default=None, min_length=1, max_length=80)
    """An id of GET /v1/environments; the run's own when not given."""
    name: PlainText = Field(default="", max_length=200)


SFT_FORMAT = "benchmax-sft-v1"
"""What published clients call JSON lines of chats."""
SFT_FORMATS = (*(suffix[1:] for suffix in FORMATS), SFT_FORMAT)


def _known_format(name: str) -> str:
    if name not in SFT_FORMATS:
        raise ValueError(f"there is no format {name[:40]!r}. Use one of: {', '.join(SFT_FORMATS)}.")
    return name


class SftDataset(Wire):
    format: Annotated[str, AfterValidator(_known_format), Field(json_schema_extra={"enum": [*SFT_FORMATS]})] = "jsonl"
    path: str = Field(min_length=1, max_length=500)
    """Of a file, or of a folder with train.jsonl and eval.jsonl."""
    digest: str | None = Field(default=None, max_length=80)
    rows: int | None = Field(default=None, ge=0)


class SftEval(Wire):
    rows: int = Field(default=0, ge=0, le=1_000_000)
    """The last so many rows are not learned from; the loss on them is."""
    digest: str | None = Field(default=None, max_length=80)


class SftRequest(Wire):
    name: PlainText | None = Field(default=None, max_length=300)
    dataset: SftDataset
    args: JsonObject = Field(default={})
    model: str | None = Field(default=None, min_length=1, max_length=200)
    eval: SftEval | None = None
