"""The tree of settings. The string under each field is its documentation."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from benchmax.envs.composed.parts import spec_of
from benchmax.envs.datasets.split import HELD_OUT_SHARE, Order
from benchmax.limits import MIN_TRAIN_ROWS, REWARD_SECONDS, ROLLOUT_SECONDS, TOOL_SECONDS


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_as_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true for a number, which Python takes as 1: another setting was meant."""
        kind = cls.model_fields[str(info.field_name)].annotation
        given = value.values() if isinstance(value, Mapping) else [value]
        if {int, float} & {kind, *get_args(kind)} and any(isinstance(each, bool) for each in given):
            raise PydanticCustomError("switch_as_number", "a switch is no number")
        return value


class ModelConfig(Section):
    name: str = "smollm2-135m"
    """The model to train: a name of the local store, a directory, a GGUF file or a hub id."""
    tune: Literal["lora", "full"] = "lora"
    """Train a LoRA adapter, or all weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train and sample."""
    sampler_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the sampler's weights; auto is bfloat16 on CUDA and float32 on CPU."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: a third slower, far less memory."""


class LoraConfig(Section):
    rank: int = Field(default=16, ge=1, le=1024)
    """Rank of the adapter."""
    alpha: float = Field(default=32.0, gt=0)
    """The adapter is scaled by alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input."""
    targets: list[str] = ["all-linear"]
    """Names of the linear layers to adapt, as a list or with commas: `q_proj,v_proj`. `all-linear` is every one but
    the output head."""

    @field_validator("targets", mode="before")
    @classmethod
    def _with_commas(cls, targets: Any) -> Any:
        return [name.strip() for name in targets.split(",")] if isinstance(targets, str) and targets else targets


class DataConfig(Section):
    env: str = ""
    """The environment: a name of `benchmax env list`, `package.module:Class` or `file.py:Class`. Several are given as
    `math,crm`, as a list, or as a table of weights: `{math = 2, crm = 1}`."""
    env_args: dict[str, Any] = {}
    """Arguments of the environment's constructor: texts, finite numbers, true, false, lists and tables."""
    train: str = ""
    """Training rows: a JSONL, JSON, CSV or Parquet file, or a dataset name."""
    eval: str = ""
    """Held-out rows; empty holds out `eval_share` of the training rows."""
    eval_share: float = Field(default=HELD_OUT_SHARE, ge=0, lt=1)
    """Share of the training rows held out when `eval` is empty."""
    hold_out: Order = "spread"
    """Which rows are held out: `spread` takes them evenly from all rows, `last` from the end, for rows in the order of
    time."""
    lenient: bool = False
    """Leave unusable rows out instead of stopping."""
    sandbox: bool = False
    """Run the environment in a sandbox; its code is not loaded outside of it."""
    min_rows: int = Field(default=MIN_TRAIN_ROWS, ge=1)
    """Fewest training rows accepted."""
    curriculum: Literal["auto", "none", "pass_rate"] = "auto"
    """`pass_rate` draws prompts whose samples differ in reward more often than those that always earn the same; `auto`
    does so once rows are seen to differ in difficulty."""

    @field_validator("env", mode="before")
    @classmethod
    def _several(cls, env: Any) -> Any:
        return spec_of(env)

    @field_validator("env_args")
    @classmethod
    def _as_saved(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if lost := ", ".join(_lost_when_saved(arguments)):
            raise ValueError(
                f"{lost} cannot be saved with the run, and a resumed one would not have it; "
                "give texts (a date too), finite numbers, true, false, lists or tables"
            )
        return arguments


def _lost_when_saved(value: Any, name: str = "") -> Iterator[str]:
    """The parts of an argument that JSON cannot hold, which a resumed run reads."""
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _lost_when_saved(item, f"{name}.{key}" if name else str(key))
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        yield f"{name} ({value})"


class RolloutConfig(Section):
    prompts_per_step: int = Field(default=8, ge=1)
    """Prompts in one step. Not given: 8 on a CPU, 16 on CUDA."""
    group_size: int = Field(default=8, ge=2)
    """Samples of each prompt; they are compared with each other. Not given: 8 on a CPU, 16 on CUDA."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Most tokens in one turn. Not given: 256, on a CPU fewer where good answers are known to be short."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most sampled tokens in a whole rollout."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature; the loss uses the same one."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; below 1 the trained distribution is not the sampled one."""
    max_turns: int | None = Field(default=None, ge=1)
    """Model turns in one rollout. Not given: what the environment recommends, else two more than known solutions take,
    else 16."""
    max_tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls in one rollout. Not given: what the environment recommends, else 64."""
    timeout: float = Field(default=ROLLOUT_SECONDS, gt=0)
    """Seconds for one rollout."""
    tool_seconds: float = Field(default=TOOL_SECONDS, gt=0)
    """Seconds for one tool call."""
    reward_seconds: float = Field(default=REWARD_SECONDS, gt=0)
    """Seconds for the reward of one rollout."""
    concurrency: int = Field(default=512, ge=1)
    """Rollouts in flight at once."""
    weights: dict[str, float] = {}
    """Weight of each reward component; 1 when not named."""
    max_extra_groups: int | None = Field(default=None, ge=0)
    """Fresh prompts a step may draw in place of groups without signal; half of prompts_per_step when not set."""


class AlgorithmConfig(Section):
    advantage: Literal["std", "mean"] = "std"
    """`std` divides by the group's standard deviation (GRPO); `mean` only subtracts the mean (Dr. GRPO)."""
    leave_one_out: bool = False
    """Compare a sample with the mean of its siblings without itself (RLOO)."""
    min_scored: float = Field(default=0.75, gt=0, le=1)
    """Share of a group that must be scored for the group to be used, and of the held-out rollouts for an evaluation to
    count."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio is clipped below 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0)
    """The ratio is clipped above 1 + clip_high."""
    normalise: Literal["token", "sequence", "constant"] = "token"
    """`token`: mean over all tokens; `sequence`: mean of the sequences' means; `constant`: sum over tokens divided by
    sequences × max_new_tokens."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence to the model the run began with."""
    importance_cap: float = Field(default=2.0, ge=0)
    """Truncation of the trainer/sampler probability ratio that corrects a differing sampler; 0 switches it off."""
    cut_off: Literal["penalise", "mask", "keep"] = "penalise"
    """How an answer that was cut off at its token limit counts in the update: `penalise` takes `cut_off_penalty` of its
    reward, and less the further it stayed below the limit; `mask` leaves it out; `keep` counts it in full."""
    cut_off_penalty: float = Field(default=0.5, ge=0, le=1)
    """Share of its reward that a cut-off answer loses."""
    guidance: Literal["auto", "off"] = "auto"
    """`auto` puts a demonstration, where one is known, into groups in which no sample earns more than another."""
    updates: int = Field(default=1, ge=1)
    """Passes over each batch."""
    minibatches: int = Field(default=1, ge=1)
    """Optimizer steps in one pass."""


class OptimConfig(Section):
    lr: float | None = Field(default=None, gt=0)
    """Learning rate; not set, the preset for the model's size and tuning, adapted to the first updates."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate decays over `limits.steps`."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's decoupled weight decay."""
    grad_clip: float = Field(default=1.0, ge=0)
    """Largest norm of the gradient; 0 does not clip."""
    trust_region: float = Field(default=1.0, ge=0)
    """Farthest one update may move the policy, as KL divergence per rollout. A larger one is pulled back and lowers the
    learning rate, which rises again while updates stay far below. 0 switches this off."""
    cooling: bool = True
    """Halve the learning rate whenever two evaluations in a row bring nothing better, down to a tenth of it."""
    token_budget: int | None = Field(default=None, ge=16)
    """Tokens in one micro-batch: bounds memory. Not set: 512 on CPU, 8,192 on CUDA."""
    row_tokens: int | None = Field(default=None, ge=16)
    """Tokens in one packed row; rollouts in a row share their common prefixes. Not set: 512 on CPU, 1,024 on CUDA."""


class EvalConfig(Section):
    every: int = Field(default=5, ge=0)
    """Evaluate on held-out rows every so many steps, before the first and after the last; 0 only then."""
    rows: int | None = Field(default=64, ge=1)
    """Most held-out rows used."""
    samples: int = Field(default=1, ge=1)
    """Samples of each row."""
    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    target: float | None = None
    """Stop when the mean held-out reward reaches this."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many evaluations without a better one."""
    stop_solved: bool = True
    """Stop when two evaluations in a row earn all that known solutions do."""


class LimitsConfig(Section):
    steps: int = Field(default=100, ge=1)
    """Training steps."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall time of the run, setup not counted."""


class CheckpointConfig(Section):
    every: int = Field(default=5, ge=1)
    """Save every so many steps, and at the end."""
    keep_last: int = Field(default=2, ge=1)
    """Checkpoints kept, the newest first."""
    keep_best: bool = True
    """Keep the one with the best held-out reward too."""


class SftConfig(Section):
    data: str = ""
    """Chat rows for a supervised warm start: another spelling of `warm_start`."""
    rows: int = Field(default=64, ge=1)
    """Most training rows that a warm start without a file shows solutions of."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the rows of a file."""
    doses: int = Field(default=12, ge=1)
    """Most doses, of four optimizer steps each, of a warm start without a file; it ends when the model's own samples
    have signal."""
    batch: int = Field(default=16, ge=1)
    """Rows in one optimizer step."""
    lr: float | None = Field(default=None, gt=0)
    """Learning rate; not set, that of `optim`."""


class OutputConfig(Section):
    dir: str = "runs"
    """Where run directories are made."""
    name: str = ""
    """The run's name, one folder in `dir`; made from the environment and the time when empty."""
    save_tokens: bool = False
    """Keep token ids and log-probs in the rollout files: exact, and several times larger."""

    @field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        if name.startswith(".") or any(letter in "/\\" or not letter.isprintable() for letter in name):
            raise ValueError(f"{name!r} is not the name of one folder; leave out slashes and a dot at the beginning")
        return name


class WatchConfig(Section):
    window: int = Field(default=10, ge=2)
    """Steps an alarm looks back on, and stays silent after an alert."""
    equal_steps: int = Field(default=20, ge=1)
    """Steps without any signal before an alert."""
    drift: float = Field(default=0.1, gt=0)
    """Mean |trainer - sampler| log-prob that raises an alert."""
    mends: int = Field(default=3, ge=0)
    """Times a run that collapses goes back to its last good checkpoint and on with a smaller step; then it ends."""


WARM_STARTS = ("auto", "off", "gold", "hint")

PLAIN: Mapping[str, Any] = {
    "warm_start": "off",
    "algorithm": {"cut_off": "keep", "guidance": "off"},
    "data": {"curriculum": "none"},
    "watch": {"mends": 0},
    "optim": {"trust_region": 0.0, "cooling": False},
    "eval": {"stop_solved": False},
}
"""What `recipe = plain` means."""


class TrainConfig(Section):
    """Everything a training run is made from."""

    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    data: DataConfig = DataConfig()
    rollouts: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()
    limits: LimitsConfig = LimitsConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    sft: SftConfig = SftConfig()
    watch: WatchConfig = WatchConfig()
    output: OutputConfig = OutputConfig()
    recipe: Literal["auto", "plain"] = "auto"
    """`plain` is GRPO and nothing else: no warm start, no guidance, no recovery, no curriculum; cut-off answers count
    in full."""
    warm_start: str = "auto"
    """What the model is shown before it searches by itself. `auto`: nothing where its samples have signal, else the
    cheapest that helps; `off`; `gold`: solutions that earn; `hint`: its own answers with the solution in sight; or a
    file of chats."""

    @field_validator("warm_start")
    @classmethod
    def _known_or_a_file(cls, given: str) -> str:
        if given not in WARM_STARTS and not (Path(given).suffix or os.path.exists(given)):
            raise ValueError(f"{given!r} is neither {', '.join(WARM_STARTS)} nor a file of chats")
        return given

    backend: str = "embedded"
    """What trains: `embedded`, or a backend that an installed package adds."""
    seed: int = 0
    """Seed of every draw; on CPU the same seed gives the same run."""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, tree: Any) -> Any:
        """Put the recipe's settings under those that were given."""
        if not isinstance(tree, Mapping) or tree.get("recipe") != "plain":
            return tree
        whole: dict[str, Any] = {}
        merge(whole, PLAIN)
        merge(whole, tree)
        return whole

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if self.algorithm.minibatches > self.rollouts.prompts_per_step:
            raise ValueError("algorithm.minibatches must not exceed rollouts.prompts_per_step")
        return self

    @property
    def extra_groups(self) -> int:
        wanted = self.rollouts.max_extra_groups
        return self.rollouts.prompts_per_step // 2 if wanted is None else wanted


def merge(tree: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Put a tree of settings over another."""
    for key, value in other.items():
        if not isinstance(value, Mapping):
            tree[key] = value
            continue
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        merge(tree[key], value)
