"""How rollouts are run: budgets, deadlines, sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.errors import ConfigError
from benchmax.models.base import Sampling, need_count, need_number

_SECONDS = ("max_seconds", "init_seconds", "tool_seconds", "reward_seconds", "release_seconds", "model_seconds")


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """What one rollout may use. Each budget has its own termination reason."""

    max_turns: int | None = None
    """Model turns; the environment's `recommended_max_turns` when None."""
    max_tool_calls: int | None = None
    """Tool calls in all; the environment's `recommended_max_tool_calls` when None."""
    max_tokens: int | None = None
    """Sampled tokens in all turns."""
    max_cost_usd: float | None = None
    max_seconds: float = limits.ROLLOUT_SECONDS
    """Wall time of the model and tool turns."""
    init_seconds: float = limits.INIT_SECONDS
    tool_seconds: float = limits.TOOL_SECONDS
    reward_seconds: float = limits.REWARD_SECONDS
    release_seconds: float = limits.RELEASE_SECONDS
    model_seconds: float = limits.MODEL_SECONDS
    tool_output_chars: int = limits.TOOL_OUTPUT_CHARS
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of reward components; those of the environment when empty, and 1 when not named."""
    sampling: Sampling = field(default_factory=Sampling)
    score: bool = True
    """Whether to compute rewards; a playground does not."""

    def __post_init__(self) -> None:
        need_count("max_turns", self.max_turns, optional=True)
        need_count("max_tool_calls", self.max_tool_calls, least=0, optional=True)
        need_count("max_tokens", self.max_tokens, optional=True)
        need_number("max_cost_usd", self.max_cost_usd, at_least=0, optional=True)
        for name in _SECONDS:
            need_number(name, getattr(self, name), above=0)
        need_count("tool_output_chars", self.tool_output_chars)
        if not isinstance(self.weights, Mapping):
            raise ConfigError(f"weights is {self.weights!r}; give a dict such as {{'correct': 1.0}}.")
        for component, weight in self.weights.items():
            need_number(f"weights[{component!r}]", weight)
        if not isinstance(self.sampling, Sampling):
            raise ConfigError(f"sampling is {self.sampling!r}; give a Sampling(…).")

    def turns_for(self, env: BaseEnv, part: str = "") -> int:
        """The turns of a rollout of the environment, or of one of its parts."""
        advised = env.composed_of[part]["max_turns"] if part else env.recommended_max_turns
        return self.max_turns or advised or limits.MAX_TURNS

    def tool_calls_for(self, env: BaseEnv, part: str = "") -> int:
        if self.max_tool_calls is not None:
            return self.max_tool_calls
        advised = env.composed_of[part]["max_tool_calls"] if part else env.recommended_max_tool_calls
        return limits.MAX_TOOL_CALLS if advised is None else advised
