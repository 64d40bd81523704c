"""How rollouts are run: budgets, deadlines, sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.models.base import Sampling


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """What one rollout may use. Each budget has a termination reason of its own."""

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

    def turns_for(self, env: BaseEnv) -> int:
        return self.max_turns or env.recommended_max_turns or limits.MAX_TURNS

    def tool_calls_for(self, env: BaseEnv) -> int:
        if self.max_tool_calls is not None:
            return self.max_tool_calls
        return limits.MAX_TOOL_CALLS if env.recommended_max_tool_calls is None else env.recommended_max_tool_calls
