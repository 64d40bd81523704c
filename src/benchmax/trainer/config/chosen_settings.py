"""Settings the user left out, chosen from the device, from known solutions and from the model's size.

All but the learning rate are chosen once, when a run begins, reported with the reason, and saved: a resumed run keeps
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmax.envs.base_env import BaseEnv
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config.sections import TrainConfig

ON_CUDA = {"prompts_per_step": 16, "group_size": 16}
"""The size of a step on a GPU, where it costs little more than a small one."""
CPU_SECONDS = 720.0
SPARE_TURNS = 2
TOKENS_FACTOR = 4
"""The factor from the tokens of the longest known turn to the limit."""
MIN_TOKENS = 64
TOKENS_MULTIPLE = 32
"""A limit is a multiple of this."""
MAX_CPU_TOKENS = 3_000
"""The most tokens of one step's update on a CPU."""
MIN_PROMPTS = 4


_PRESET_LR: tuple[tuple[float, float, float], ...] = (
    # parameters up to, LoRA, all weights
    (2e6, 2e-3, 1e-3),
    (3e8, 5e-4, 1e-5),
    (1.2e9, 2e-4, 5e-6),
    (5e9, 1e-4, 2e-6),
    (float("inf"), 5e-5, 1e-6),
)


def preset_lr(parameters: int, tune: str) -> float:
    """The learning rate that works for a model of this size."""
    lora, full = next(rates for most, *rates in _PRESET_LR if parameters <= most)
    return lora if tune == "lora" else full


class ChosenSetting(NamedTuple):
    """A setting that was chosen, and why."""

    name: str
    value: Any
    why: str


def fit_to_device(config: TrainConfig, device: str) -> list[ChosenSetting]:
    """The size of a step, by where it runs."""
    if config.recipe == "plain":
        return []
    if device == "cuda":
        found = [
            ChosenSetting(f"rollouts.{name}", value, "a GPU has room for it")
            for name, value in ON_CUDA.items()
            if name not in config.rollouts.model_fields_set
        ]
        return _apply(config, found)
    if {"steps", "seconds"} & config.limits.model_fields_set:
        return []
    why = "a run on a CPU ends by then, unless limits.steps or limits.seconds is given"
    return _apply(config, [ChosenSetting("limits.seconds", CPU_SECONDS, why)])


def fit_to_solutions(
    config: TrainConfig, env: BaseEnv, solutions: Sequence[Rollout], device: str
) -> list[ChosenSetting]:
    """How long rollouts may be, by how long known solutions are."""
    if config.recipe == "plain" or not solutions:
        return []
    given, found = config.rollouts, list[ChosenSetting]()
    turns = max(rollout.turns for rollout in solutions)
    if given.max_turns is None and not env.recommended_max_turns:
        found.append(ChosenSetting("rollouts.max_turns", turns + SPARE_TURNS, f"known solutions take {turns}"))
    longest = max(len(part.ids) for rollout in solutions for part in rollout.tokens if part.sampled)
    wanted = -(-max(MIN_TOKENS, TOKENS_FACTOR * longest) // TOKENS_MULTIPLE) * TOKENS_MULTIPLE
    if device == "cpu" and "max_new_tokens" not in given.model_fields_set and wanted < given.max_new_tokens:
        found.append(ChosenSetting("rollouts.max_new_tokens", wanted, f"known answers have at most {longest}"))
    return _apply(config, found)


def fit_to_size(config: TrainConfig, tokens: int, device: str) -> list[ChosenSetting]:
    """Fewer prompts a step, where a step on a CPU would compute very many tokens."""
    given = config.recipe == "plain" or "prompts_per_step" in config.rollouts.model_fields_set
    if device != "cpu" or tokens <= MAX_CPU_TOKENS or given:
        return []
    prompts = max(MIN_PROMPTS, config.rollouts.prompts_per_step * MAX_CPU_TOKENS // tokens)
    if prompts >= config.rollouts.prompts_per_step:
        return []
    why = f"a step of {config.rollouts.prompts_per_step} would compute {tokens:,} tokens"
    return _apply(config, [ChosenSetting("rollouts.prompts_per_step", prompts, why)])


def _apply(config: TrainConfig, found: list[ChosenSetting]) -> list[ChosenSetting]:
    for each in found:
        section, _, name = each.name.partition(".")
        setattr(getattr(config, section), name, each.value)
    return found
