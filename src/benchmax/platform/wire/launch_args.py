"""What a launch may ask for: one table, served to clients, and read by the child that trains.

Each argument names the trainer's setting it becomes. Defaults depend on the hardware: on CPU they are a recipe with
which a small model learns in minutes, and `max_minutes` bounds the run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmax import limits
from benchmax.config import setting
from benchmax.errors import ConfigError
from benchmax.platform.wire.launches import LaunchArg

EVALUATIONS, MOST_BETWEEN = 5, 5
"""Evaluations in one run besides the first, at least, and steps between two, at most, unless `eval_every` says
otherwise."""
EVAL_ROWS = {"cpu": 32, "gpu": 256}
"""Held-out rows used in each."""
TURN_TOKENS = 256
"""Tokens the trainer allows one turn when nothing else is known."""


_SFT_UNUSED = frozenset(
    {
        "adam_beta2", "eval_interval", "grad_clip", "lr_decay_style", "max_context_tokens", "min_lr", "save_interval",
        "warmup_ratio",
    }
)  # fmt: skip
"""Settings of published clients' supervised runs: here a checkpoint is saved at the end, and a row must fit."""


class _Row(NamedTuple):
    name: str
    label: str
    type: str
    cpu: Any
    """Default on CPU; None leaves the choice to the trainer."""
    gpu: Any
    min: float | None
    max: float | None
    description: str
    becomes: str = ""
    """The trainer's setting; empty where `settings_tree` does more than copy."""
    warn_above: float | None = None
    enum: tuple[str, ...] = ()


TABLE = (
    _Row("model", "Model", "string", "smollm2-135m", "smollm2-135m", None, None,
         "The model to train: a name that `benchmax models list` shows on the platform's machine. "
         "`benchmax models add` gives a directory a name.", "model.name"),
    _Row("backend", "Trainer", "string", "embedded", "embedded", None, None,
         "What trains: the embedded trainer, or an outside one that the platform's machine has. Then `model` is a name "
         "that the outside trainer knows.", "backend"),
    _Row("learning_rate", "Learning rate", "number", None, None, 1e-8, 0.1,
         "Empty: what suits the model's size (5e-4 for LoRA on 135M parameters).", "optim.lr", 5e-3),
    _Row("num_epochs", "Epochs", "number", 5, 5, 0.01, 1000, "Passes over the training rows."),
    _Row("max_steps", "Max steps", "integer", None, None, 1, 1_000_000, "Stop after so many steps, epochs or not."),
    _Row("max_minutes", "Max minutes", "number", 12, None, 0.01, 100_000,
         "Stop after so much training time, with a last evaluation and a checkpoint."),
    _Row("prompts_per_step", "Prompts per step", "integer", 4, 16, 1, 4096, "Prompts in one step.",
         "rollouts.prompts_per_step"),
    _Row("group_size", "Group size", "integer", 8, 9, 2, 256, "Rollouts of each prompt, compared with each other.",
         "rollouts.group_size"),
    _Row("max_extra_groups", "Extra groups", "integer", None, None, 0, 4096,
         "Fresh prompts a step may draw in place of groups without signal. Empty: half of prompts_per_step.",
         "rollouts.max_extra_groups"),
    _Row("tune", "Tuning", "string", "lora", "lora", None, None, "Train a LoRA adapter, or all weights.",
         "model.tune", enum=("lora", "full")),
    _Row("lora_rank", "LoRA rank", "integer", 16, 128, 1, 1024, "Rank of the adapter that is trained.", "lora.rank"),
    _Row("lora_alpha", "LoRA alpha", "number", None, None, 0.1, 4096, "Scale of the adapter. Empty: twice the rank."),
    _Row("max_rollout_len", "Max tokens per rollout", "integer", 512, 4096, 1, 1_000_000,
         "Sampled tokens in a whole rollout, at most.", "rollouts.max_tokens", 16_384),
    _Row("max_new_tokens", "Max tokens per turn", "integer", None, 1024, 1, 131_072,
         "Sampled tokens in one turn, at most. Empty: from the length of known good answers, 256 at most."),
    _Row("max_turns", "Max turns", "integer", None, None, 1, 1000,
         "Model turns in one rollout. Empty: what the environment recommends, else two more than known solutions "
         "take, else 16.", "rollouts.max_turns"),
    _Row("max_tool_calls", "Max tool calls", "integer", None, None, 0, 1000,
         "Tool calls in one rollout. Empty: what the environment recommends, else 64.", "rollouts.max_tool_calls"),
    _Row("tool_seconds", "Seconds per tool call", "number", limits.TOOL_SECONDS, limits.TOOL_SECONDS, 0.1, 86_400,
         "A tool call that takes longer is an error that the model reads.", "rollouts.tool_seconds"),
    _Row("reward_seconds", "Seconds per reward", "number", limits.REWARD_SECONDS, limits.REWARD_SECONDS, 0.1, 86_400,
         "A rollout whose reward takes longer stays unscored.", "rollouts.reward_seconds"),
    _Row("temperature", "Temperature", "number", 1.0, 1.0, 0.01, 10, "Sampling temperature: higher is more varied.",
         "rollouts.temperature"),
    _Row("warm_start", "Warm start", "string", "auto", "auto", None, None,
         "What the model is shown before it searches by itself. auto: nothing where its samples have signal, else the "
         "cheapest that helps; gold: solutions that earn; hint: its own answers with the solution in sight; off.",
         "warm_start", enum=("auto", "off", "gold", "hint")),
    _Row("recipe", "Recipe", "string", "auto", "auto", None, None,
         "plain is GRPO and nothing else: no warm start, no guidance, no mending.", "recipe", enum=("auto", "plain")),
    _Row("kl", "KL weight", "number", 0.0, 0.0, 0, 100, "How strongly the model is kept near the one it began as.",
         "algorithm.kl"),
    _Row("eval_every", "Steps between evals", "integer", None, None, 0, 1_000_000,
         "Empty: five, fewer in a short run. 0: only before the first and after the last step."),
    _Row("save_tokens", "Save tokens", "boolean", False, False, None, None,
         "Keep token ids and log-probs of every rollout, for the token view. Takes several times the space, and "
         "secrets that a rollout saw are in them.", "output.save_tokens"),
    _Row("seed", "Seed", "integer", 0, 0, 0, 2**31 - 1, "Seed of all sampling.", "seed"),
)  # fmt: skip


def gpu_names() -> list[str]:
    """GPUs that runs may use: those CUDA_VISIBLE_DEVICES leaves, or all of this machine, `BENCHMAX_GPUS` at most.

    They are found by their device files, without torch, and without NVML: a client has no binding for it, and a driver
    may take its time to answer.
    """
    most = setting("GPUS")
    if most and not most.isdecimal():
        raise ConfigError(f"BENCHMAX_GPUS is {most!r}. Give a number, 0 for none.")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    else:
        numbers = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia*"))
        names = sorted((number for number in numbers if number.isdecimal()), key=int)
    return names[: int(most)] if most else names


def launch_args(gpu: bool | None = None, models: Sequence[str] = (), backends: Sequence[str] = ()) -> list[LaunchArg]:
    """All arguments, with defaults that suit this machine. Given `models` or `backends`, others are refused."""
    gpu = bool(gpu_names()) if gpu is None else gpu
    choices = {"model": models, "backend": backends}
    return [
        LaunchArg.model_validate(
            {
                **row._asdict(),
                "default": row.gpu if gpu else row.cpu,
                "enum": list(choices.get(row.name) or row.enum) or None,
            }
        )
        for row in TABLE
    ]


def complete_args(args: Mapping[str, Any], gpu: bool | None = None) -> dict[str, Any]:
    """Checked arguments with a value, or None, for every row of the table; names it does not have are left out."""
    return {spec.name: args.get(spec.name, spec.default) for spec in launch_args(gpu)}


def total_steps(args: Mapping[str, Any], rows: int) -> int:
    """Training steps of a run over so many rows."""
    args = complete_args(args)
    steps: int = max(1, math.ceil(args["num_epochs"] * rows / args["prompts_per_step"]))
    most: int = args["max_steps"] or steps
    return min(steps, most)


def sft_steps(args: Mapping[str, Any], rows: int) -> int:
    """Steps of a supervised run over so many rows."""
    args = complete_args(args)
    steps: int = max(1, round(args["num_epochs"])) * math.ceil(rows / args["prompts_per_step"])
    return steps


def sft_args(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A supervised run's arguments by our names, and those that published clients send and nothing here uses."""
    unused = sorted(_SFT_UNUSED & {name for name, value in given.items() if value is not None})
    kept = {name: value for name, value in given.items() if name not in _SFT_UNUSED}
    if "global_batch_size" in kept:
        kept.setdefault("prompts_per_step", kept.pop("global_batch_size"))
    return kept, unused


def settings_tree(args: Mapping[str, Any], rows: int, gpu: bool | None = None) -> dict[str, Any]:
    """The trainer's settings for checked arguments and so many training rows."""
    gpu = bool(gpu_names()) if gpu is None else gpu
    given, args = args, complete_args(args, gpu)
    steps = total_steps(args, rows)
    turn, whole = args["max_new_tokens"], args["max_rollout_len"]
    small = whole is not None and whole < TURN_TOKENS
    every = max(1, min(MOST_BETWEEN, steps // EVALUATIONS)) if args["eval_every"] is None else args["eval_every"]
    tree: dict[str, Any] = {
        "lora": {"alpha": args["lora_alpha"] or 2.0 * args["lora_rank"]},
        "rollouts": {"max_new_tokens": min(each for each in (turn, whole) if each)} if turn or small else {},
        "eval": {"every": every, "rows": EVAL_ROWS["gpu" if gpu else "cpu"]},
        "limits": {"steps": steps, "seconds": 60.0 * args["max_minutes"] if args["max_minutes"] else None},
    }
    for row in TABLE:
        section, dot, name = row.becomes.partition(".")
        if dot and args[row.name] is not None:
            tree.setdefault(section, {})[name] = args[row.name]
        elif section and args[row.name] is not None:
            tree[section] = args[row.name]
    if args["recipe"] == "plain" and "warm_start" not in given:
        del tree["warm_start"]
    return tree
