"""Where rollouts come from, behind one small port.

The loop asks for groups and pushes new weights; the engine in this process answers. Every rollout draws from a seed of
its own, made of the run's seed, the step, the example and the sample: a step sampled again gives the same rollouts.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from torch import Tensor

from benchmax.envs.types import Example, ToolDefinition
from benchmax.inference.local import LocalModel
from benchmax.models.base import Conversation, ModelClient, Sampling
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import TrainConfig

OnGroup = Callable[[list[Rollout]], None]


@dataclass(frozen=True, slots=True)
class Draw:
    """What to sample."""

    split: str
    step: int
    group_size: int
    temperature: float


class Sampler(Protocol):
    """Plays examples with the newest weights."""

    async def sample(self, examples: Sequence[Example], draw: Draw, on_group: OnGroup) -> list[list[Rollout]]:
        """One group of siblings for each example, in the order of the examples."""
        ...

    def push(self, weights: Mapping[str, Tensor]) -> None:
        """Take over new weights, by the model's parameter names."""
        ...


class EngineSampler:
    """Samples with the local engine, in the user's environment."""

    def __init__(self, host: EnvHost, model: LocalModel, config: TrainConfig) -> None:
        self.host = host
        self.model = model
        self.config = config

    async def sample(self, examples: Sequence[Example], draw: Draw, on_group: OnGroup) -> list[list[Rollout]]:
        gate = asyncio.Semaphore(max(1, self.config.rollouts.concurrency // draw.group_size))
        settings = rollout_settings(self.config, draw)

        async def one(example: Example) -> list[Rollout]:
            async with gate:
                model = SeededModel(self.model, (self.config.seed, draw.split, draw.step, example["id"]))
                samples = range(draw.group_size)
                group = await run_group(
                    self.host, example, model, settings, samples=samples, split=draw.split, step=draw.step
                )
            on_group(group)
            return group

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(example)) for example in examples]
        return [task.result() for task in running]

    def push(self, weights: Mapping[str, Tensor]) -> None:
        self.model.engine.update_weights(dict(weights))


def rollout_settings(config: TrainConfig, draw: Draw) -> RolloutSettings:
    """The run's settings as those of one rollout."""
    rollouts = config.rollouts
    return RolloutSettings(
        max_turns=rollouts.max_turns,
        max_tool_calls=rollouts.max_tool_calls,
        max_tokens=rollouts.max_tokens,
        max_seconds=rollouts.timeout,
        weights=rollouts.weights,
        sampling=Sampling(
            temperature=draw.temperature,
            top_p=rollouts.top_p if draw.temperature else 1.0,
            max_tokens=rollouts.max_new_tokens,
            logprobs=True,
        ),
    )


class SeededModel(ModelClient):
    """A model whose conversations draw from seeds of their own, in the order they are opened."""

    def __init__(self, model: ModelClient, path: tuple[object, ...]) -> None:
        self.name = model.name
        self._model = model
        self._path = path
        self._opened = count()

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        seed = seed_of(*self._path, next(self._opened))
        return self._model.converse(tools=tools, sampling=replace(sampling, seed=seed))


def seed_of(*path: object) -> int:
    """A seed made of what names a draw."""
    digest = hashlib.blake2b(repr(path).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2
