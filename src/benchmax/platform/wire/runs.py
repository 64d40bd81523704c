"""The wire: shapes that server, SDK and console agree on. Responses are camelCase; times are ISO 8601 in UTC."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from benchmax import limits
from benchmax.envs.datasets.rows import deeper
from benchmax.errors import ConfigError

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
"""Names that other versions of the API use for one of ours."""

WHEN_HIGH = {"learning_rate": "training may diverge", "max_rollout_len": "it may not fit into memory"}
"""What may happen above an argument's `warn_above`; the console has the same words."""

Time = Annotated[
    float, PlainSerializer(lambda at: datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"), str)
]


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what JSON or a database cannot hold: NaN, half characters, zero bytes."""
    if deeper(value, limits.JSON_DEPTH):
        raise ValueError(f"it is nested deeper than {limits.JSON_DEPTH} levels. Make it flatter.")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    if "\\u0000" in text:
        raise ValueError("zero bytes cannot be stored")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_storable)]
"""An object a caller sends that is stored and given back."""

PlainText = Annotated[str, AfterValidator(lambda text: _storable({"text": text})["text"])]


class Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


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


class UploadUrl(Wire):
    upload_url: str
    expires_at: Time
    blob_path: str
    will_overwrite: bool


class RunInfo(Wire):
    id: str
    name: str
    status: str
    status_reason: str
    created_at: Time
    updated_at: Time
    started_at: Time | None
    ended_at: Time | None
    is_public: bool
    is_owner: bool
    has_launcher_job: bool
    archived: bool
    tags: list[str]
    total_steps: int | None
    latest_step: int | None
    latest_activity_message: str
    launcher_args: dict[str, Any] | None = None
    pinned: bool = False
    notes: str = ""
    type: str = "simple"
    """The kind of run asked for; `sft` is a supervised one."""
    parent_run_id: str | None = None
    """The run it was forked from."""
    model: str = ""
    environment: str = ""
    """What the environment was uploaded as, or the name of a built-in one."""
    task_digest: str = ""
    """Equal for runs that train on the same rows of the same environment."""
    given: dict[str, Any] = {}
    """The launch arguments that were given, without the model; the others are defaults."""
    elapsed_seconds: float | None = None
    """Since training began, to its end or to now, without the time between a stop and its resumption."""
    heartbeat_at: Time | None = None
    eta_seconds: float | None = None
    """Until the last step, at the speed so far; None when it cannot be told."""
    reward_first: float | None = None
    """Mean training reward of the first step, and of the latest."""
    reward_latest: float | None = None
    eval_reward_first: float | None = None
    """Mean reward on held-out rows before training, and at the latest evaluation."""
    eval_reward_latest: float | None = None
    error_rate: float | None = None
    """Share of the latest step's rollouts that failed."""


class RunDetails(RunInfo):
    modes: list[str]
    error_count: int


class RunChange(Wire):
    """What an owner may change; what is not given stays."""

    name: PlainText | None = Field(default=None, min_length=1, max_length=300)
    is_public: bool | None = None
    archived: bool | None = None
    tags: Annotated[list[Annotated[PlainText, Field(min_length=1, max_length=60)]], Field(max_length=20)] | None = None
    pinned: bool | None = None
    notes: PlainText | None = Field(default=None, max_length=20_000)


class RunEvent(Wire):
    id: int
    created_at: Time
    category: str
    type: str
    message: str
    data: dict[str, Any]


class RunEvents(Wire):
    events: list[RunEvent]


class ScalarPoint(Wire):
    step: int
    value: float
    min: float | None = None
    """With `max`: the extremes of the steps this point stands for, when buckets were asked for."""
    max: float | None = None


class EnvLogLine(Wire):
    id: int
    rollout_id: str | None
    step: int | None
    created_at: Time
    level: str
    message: str
    content: str
    """The message, by the name that published clients print."""
    traceback: str | None


class EnvLogs(Wire):
    logs: list[EnvLogLine]
    next_cursor: str | None = None
    """Pass it as `cursor` for the lines that are there and not in this answer; None when these are all."""
    cursor: str = "0"
    """Of the last line here: pass it later for what came since."""


class RewardAtStep(Wire):
    step: int
    mean_reward: float | None


class RolloutGroup(Wire):
    prompt_message_id: str
    prompt_text: str
    reward_history: list[RewardAtStep]


class RolloutSummary(Wire):
    data: list[RolloutGroup]
    page: int
    limit: int
    total: int


class HeatCell(Wire):
    id: str
    step: int
    total_reward: float | None
    sample: int


class NamedReward(Wire):
    name: str
    value: float


class TokenRun(Wire):
    """Tokens in a row that were all sampled by the model, or all given to it."""

    sampled: bool
    ids: list[int]
    texts: list[str] | None = None
    """What each token reads; None when the run did not save its vocabulary."""
    logprobs: list[float] | None = None


class RolloutDetails(Wire):
    id: str
    step: int
    mode: str
    prompt_message_id: str
    sample: int
    prompt_messages: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    """The turns after the prompt."""
    rewards: list[NamedReward]
    unscored: dict[str, str]
    total_reward: float | None
    task: dict[str, Any] | None
    termination: str
    error: dict[str, Any] | None
    advantage: float | None
    discarded: str | None
    turns: int
    tokens: int
    tool_events: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    seconds: dict[str, float]
    complete: bool
    """False when the record's file is gone and only the index is left."""
    token_runs: list[TokenRun] | None = None
    """The exact tokens of the conversation; None when the run did not save them (`output.save_tokens`)."""


class RolloutItem(Wire):
    id: str
    step: int
    mode: str
    prompt_message_id: str
    prompt_text: str
    sample: int
    total_reward: float | None
    rewards: dict[str, float]
    termination: str
    error_type: str | None
    ok: bool
    discarded: str | None
    advantage: float | None
    tokens: int
    turns: int
    tools: list[str]


class RolloutList(Wire):
    data: list[RolloutItem]
    page: int
    limit: int


class ModeAverage(Wire):
    avg: float | None
    count: int
    scored: int
    latest_step: int | None
    latest_avg: float | None


class ComparedRollout(Wire):
    id: str
    step: int
    total_reward: float | None


class ComparedGroup(Wire):
    prompt_message_id: str
    prompt_text: str
    mean_reward: float | None
    rollouts: list[ComparedRollout]
    components: dict[str, float] = {}
    """The mean of each reward component."""


class Comparison(Wire):
    model_groups: list[ComparedGroup]
    comp_groups: list[ComparedGroup]
    page: int
    limit: int
    total: int


class EvalRequest(Wire):
    model: str = Field(max_length=200, pattern=r"^(base|checkpoint:[\w.-]+|endpoint:[\w-]+)$")
    name: PlainText = Field(default="", max_length=200)
    rows: int | None = Field(default=None, ge=1, le=10_000)
    samples: int = Field(default=1, ge=1, le=64)


class EvalInfo(Wire):
    id: str
    name: str
    model: str
    status: str
    status_reason: str
    done: int
    total: int
    summary: dict[str, Any]
    created_at: Time
    ended_at: Time | None


class EvalList(Wire):
    evals: list[EvalInfo]


class Checkpoint(Wire):
    name: str
    step: int | None
    created_at: Time
    bytes: int
    latest: bool
    best: bool


class Checkpoints(Wire):
    checkpoints: list[Checkpoint]


class Success(Wire):
    success: bool
    message: str = ""


class DatasetIssue(Wire):
    row: int
    field: str | None
    severity: str
    message: str


class DatasetPreview(Wire):
    path: str
    bytes: int
    rows: int
    usable: int
    duplicates: int
    errors: int
    warnings: int
    issues: list[DatasetIssue]
    sample: list[dict[str, Any]]
    ids: list[str | None] = []
    """Of the rows in the sample: the example each becomes, None for one that cannot be used."""
    environment: str | None = None
    """The built-in environment they were read as."""


class StoredFile(Wire):
    path: str
    bytes: int
    mime_type: str
    sha256: str
    updated_at: Time


class StoredFiles(Wire):
    files: list[StoredFile]


class Problem(BaseModel):
    """Every error's body."""

    error: str


def check_launch_args(specs: Iterable[LaunchArg], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a run, defaults filled in, and warnings; ConfigError lists every mistake at once.

    An argument that is null was not given.
    """
    known = {spec.name: spec for spec in specs}
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
                warnings.append(f"{name} = {value:g} is above {limit:g}; {WHEN_HIGH.get(name, 'it may be too much')}.")
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
