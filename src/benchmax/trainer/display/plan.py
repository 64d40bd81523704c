"""Before the first step: what the run will do and what that takes, measured on a dry run of one update."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmax.rollouts.record import Rollout
from benchmax.trainer.sampling.step_metrics import response_tokens

if TYPE_CHECKING:
    import torch

    from benchmax.trainer.loop import Trainer

CUT_OFF = {
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
    sampled_tokens: int | None = None
    """In one step."""
    computed_tokens: int | None = None
    """In the update of one step, shared prefixes counted once."""
    step_seconds: float | None = None
    total_seconds: float | None = None
    memory_bytes: int | None = None
    """The peak so far."""
    chosen: list[dict[str, Any]] = field(default_factory=list)
    """Settings that nobody gave, with the reason for each."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """A heading and a text for each part."""
        tuned = f"LoRA, {_count(self.trained)} trained" if self.tune == "lora" else "all trained"
        found = [
            ("model", f"{self.model}, {_count(self.weights)} weights, {tuned}, on {self.device}"),
            ("rows", f"{self.rows} to train on, {self.held_out} held out"),
        ]
        step = f"{self.prompts} prompts × {self.samples} samples"
        if self.sampled_tokens is not None and self.step_seconds is not None:
            step += f", {self.sampled_tokens:,} tokens sampled, {self.computed_tokens or 0:,} computed in the update, "
            step += f"{self.step_seconds:.1f} s"
        found.append(("a step", step))
        run = f"{self.steps} steps" + (f" or {_minutes(self.seconds_limit)}" if self.seconds_limit else "")
        if self.total_seconds is not None:
            run += f", about {_minutes(self.total_seconds)} with evaluations; less if all is solved before"
        if self.memory_bytes:
            run += f"; {self.memory_bytes / 1e9:.1f} GB of memory so far"
        found.append(("the run", run))
        found += [("chosen", f"{each['name']} = {each['value']}: {each['why']}") for each in self.chosen]
        found.append(("cut off", self.cut_off))
        return found


def plan(trainer: Trainer, groups: Sequence[Sequence[Rollout]], sample_seconds: float, eval_seconds: float) -> Plan:
    """Compute an update on the first samples without applying it, and extrapolate to the run."""
    learner, config = trainer.learner, trainer.config
    began = time.monotonic()
    computed = learner.dry_run(groups)
    update = time.monotonic() - began
    made = _configured(trainer)
    made.sampled_tokens = sum(response_tokens(rollout) for group in groups for rollout in group)
    made.computed_tokens = computed
    made.step_seconds = sample_seconds + update
    evaluations = 1 + (config.limits.steps // config.eval.every if config.eval.every else 1)
    made.total_seconds = config.limits.steps * made.step_seconds + evaluations * eval_seconds
    if config.limits.seconds:
        made.total_seconds = min(made.total_seconds, config.limits.seconds)
    made.memory_bytes = _memory(learner.policy.device)
    return made


def _configured(trainer: Trainer) -> Plan:
    """The plan without any measurement."""
    config, policy = trainer.config, trainer.learner.policy
    algorithm = config.algorithm
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
        steps=config.limits.steps,
        seconds_limit=config.limits.seconds,
        cut_off=CUT_OFF[algorithm.cut_off].format(penalty=algorithm.cut_off_penalty),
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
