"""Where rollouts come from, behind one small port.

The loop asks for groups and pushes new weights; the engine in this process answers. Every rollout draws from a seed of
its own (`rollouts.play.seeded`): a step sampled again gives the same rollouts. On a CPU the engine starts each time as
new, with the memory it had before, and turns start in rounds (`RoundBarrier`), so that log-probs are the same to the
last bit. A GPU does not promise that, and its rollouts do not wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import starmap
from typing import Protocol

from torch import Tensor

from benchmax.concurrency import all_or_cancel
from benchmax.envs.base_env import with_system_prompt
from benchmax.envs.types import Example
from benchmax.inference.engine.kv_cache import free_memory
from benchmax.inference.local_model import LocalModel
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import TokenModel
from benchmax.models.base import ModelClient
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.sampling.rollout_settings import Draw, rollout_settings
from benchmax.trainer.sampling.round_barrier import RoundBarrier

OnGroup = Callable[[list[Rollout]], None]


class Sampler(Protocol):
    """Plays examples with the newest weights."""

    @property
    def host(self) -> EnvHost: ...

    @property
    def model(self) -> TokenModel: ...

    async def sample(self, examples: Sequence[Example], draw: Draw, on_group: OnGroup) -> list[list[Rollout]]:
        """One group of siblings for each example, in the order of the examples."""
        ...

    def push(self, weights: Mapping[str, Tensor]) -> None:
        """Take over new weights, by the model's parameter names."""
        ...

    def state(self) -> dict[str, int]:
        """What a checkpoint keeps of it."""
        ...

    def restore(self, state: Mapping[str, int]) -> None: ...


class EngineSampler:
    """Samples with the local engine, in the user's environment."""

    def __init__(self, host: EnvHost, model: LocalModel, config: TrainConfig) -> None:
        self.host, self.model, self.config = host, model, config

    async def sample(self, examples: Sequence[Example], draw: Draw, on_group: OnGroup) -> list[list[Rollout]]:
        if self.model.engine.device.type != "cpu":
            return await self._play(examples, draw, on_group, members=0)
        await asyncio.to_thread(self.model.engine.start_afresh)
        groups: list[list[Rollout]] = []
        at_once = _groups_at_once(self.config, draw)
        for first in range(0, len(examples), at_once):
            part = examples[first : first + at_once]
            groups += await self._play(part, draw, on_group, members=len(part) * draw.group_size)
        return groups

    async def _play(
        self, examples: Sequence[Example], draw: Draw, on_group: OnGroup, members: int
    ) -> list[list[Rollout]]:
        async with RoundBarrier(self.model.engine, members) as barrier:
            models = partial(barrier.group, self.model, draw.group_size)
            return await play_groups(self.host, examples, models, draw, self.config, on_group)

    def push(self, weights: Mapping[str, Tensor]) -> None:
        self.model.engine.update_weights(dict(weights))

    def state(self) -> dict[str, int]:
        return {"kv_bytes": self.model.engine.kv_bytes}

    def restore(self, state: Mapping[str, int]) -> None:
        """Take as much memory as the run had before, if that is free: it decides how many rollouts run together."""
        engine = self.model.engine
        if engine.device.type == "cpu" and "kv_bytes" in state:
            engine.kv_bytes = min(state["kv_bytes"], max(engine.kv_bytes, free_memory(engine.device)))


async def play_groups(
    host: EnvHost,
    examples: Sequence[Example],
    models: Callable[[int], AbstractContextManager[ModelClient]],
    draw: Draw,
    config: TrainConfig,
    on_group: OnGroup,
) -> list[list[Rollout]]:
    """One group of siblings for each example, in the order of the examples; `models` opens what plays one of them."""
    gate = asyncio.Semaphore(_groups_at_once(config, draw))
    settings, samples = rollout_settings(config, draw), range(draw.group_size)

    async def one(index: int, example: Example) -> list[Rollout]:
        async with gate:
            with models(index) as model:
                group = await run_group(
                    host, example, model, settings, samples=samples, split=draw.split, step=draw.step
                )
        on_group(group)
        return group

    return await all_or_cancel(starmap(one, enumerate(examples)))


def _groups_at_once(config: TrainConfig, draw: Draw) -> int:
    return max(1, config.rollouts.concurrency // draw.group_size)


async def prompt_tokens(host: EnvHost, chat: ChatTokens, row: Example) -> list[int]:
    """The prompt that a rollout of this row begins with."""
    part = host.part_of(row)
    messages = with_system_prompt(row["prompt_messages"], host.system_prompt(part))
    return chat.prompt(messages, (await host.toolbox(part)).tools)
