"""Before the first step: what the run will do and what that takes, measured on a dry run of one update."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmax.files.display import readable_bytes
from benchmax.rollouts.record import Rollout
from benchmax.trainer.sampling.step_metrics import response_tokens

if TYPE_CHECKING:
    import torch

    from benchmax.trainer.loop import Trainer

CUT_OFF_TEXTS = {
    "penalise": "an answer that is cut off loses {penalty:.0%} of its pay in the update",
    "mask": "an answer that is cut off is left out of the update",
    "keep": "an answer that is cut off is paid in full",
}


@dataclass(slots=True)
class Plan:
    """What a run will do, and what that takes."""

    model: str
    device: str
    weights: int
    trained: int
    tune: str
    rows: int
    held_out: int
    prompts: int
    samples: int
    steps: int
    seconds_limit: float | None
    cut_off: str
    sampled_tokens: int
    """In one step."""
    computed_tokens: int
    """In the update of one step, shared prefixes counted once."""
    step_seconds: float
    total_seconds: float
    memory_bytes: int
    """The peak so far."""
    chosen: list[dict[str, Any]]
    """Settings the user left out, with the reason for each value."""

    def lines(self) -> list[tuple[str, str]]:
        """A heading and a text for each part."""
        tuned = f"LoRA, {_count(self.trained)} trained" if self.tune == "lora" else "all trained"
        steps = f"{self.steps} steps" + (f" or {_minutes(self.seconds_limit)}" if self.seconds_limit else "")
        return [
            ("model", f"{self.model}, {_count(self.weights)} weights, {tuned}, on {self.device}"),
            ("rows", f"{self.rows} to train on, {self.held_out} held out"),
            (
                "a step",
                f"{self.prompts} prompts × {self.samples} samples, {self.sampled_tokens:,} tokens sampled, "
                f"{self.computed_tokens:,} computed in the update, {self.step_seconds:.1f} s",
            ),
            (
                "the run",
                f"{steps}, about {_minutes(self.total_seconds)} with evaluations; less if all is solved before; "
                f"{readable_bytes(self.memory_bytes)} of memory so far",
            ),
            *(("chosen", f"{each['name']} = {each['value']}: {each['why']}") for each in self.chosen),
            ("cut off", self.cut_off),
        ]


def plan(trainer: Trainer, groups: Sequence[Sequence[Rollout]], sample_seconds: float, eval_seconds: float) -> Plan:
    """Compute an update on the first samples without applying it, and extrapolate to the run."""
    config, policy = trainer.config, trainer.learner.policy
    algorithm, limits = config.algorithm, config.limits
    began = time.monotonic()
    computed = trainer.learner.dry_run(groups)
    step_seconds = sample_seconds + time.monotonic() - began
    evaluations = 1 + (limits.steps // config.eval.every if config.eval.every else 1)
    total_seconds = limits.steps * step_seconds + evaluations * eval_seconds
    return Plan(
        model=config.model.name,
        device=policy.device.type,
        weights=policy.size(),
        trained=sum(weight.numel() for weight in policy.parameters().values()),
        tune=config.model.tune,
        rows=len(trainer.stream.examples),
        held_out=len(trainer.held_out),
        prompts=config.rollouts.prompts_per_step,
        samples=config.rollouts.group_size,
        steps=limits.steps,
        seconds_limit=limits.seconds,
        cut_off=CUT_OFF_TEXTS[algorithm.cut_off].format(penalty=algorithm.cut_off_penalty),
        sampled_tokens=sum(response_tokens(rollout) for group in groups for rollout in group),
        computed_tokens=computed,
        step_seconds=step_seconds,
        total_seconds=min(total_seconds, limits.seconds) if limits.seconds else total_seconds,
        memory_bytes=_memory(policy.device),
        chosen=[dict(each) for each in trainer.chosen],
    )


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_reserved(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _count(number: int) -> str:
    return f"{number / 1e9:.1f}B" if number >= 1e9 else f"{number / 1e6:.1f}M"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
