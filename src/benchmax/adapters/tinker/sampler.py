"""Rollouts of a training run, sampled on Tinker's server and played in our environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from benchmax.adapters.engine_model import EngineModel
from benchmax.envs.types import Example
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout, Termination
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.sampling.sampler import OnGroup, play_groups

if TYPE_CHECKING:
    from benchmax.adapters.tinker.remote import RemoteModel


class TinkerSampler:
    """Plays examples with the newest weights on the server."""

    def __init__(
        self, host: EnvHost, remote: RemoteModel, chat: ChatTokens, config: TrainConfig, context: int | None = None
    ) -> None:
        self.host, self.remote, self.config = host, remote, config
        self._nothing_came = False
        self.model = EngineModel(
            chat, partial(remote.sample, stop_ids=chat.stop_ids), name=remote.name, context=context
        )

    async def sample(self, examples: Sequence[Example], draw: Draw, on_group: OnGroup) -> list[list[Rollout]]:
        """One group of siblings for each example, in the order of the examples."""
        if self._nothing_came:  # the loop tries again: not without a server
            await asyncio.to_thread(self.remote.check_alive)
        groups = await play_groups(self.host, examples, lambda _: nullcontext(self.model), draw, self.config, on_group)
        self._nothing_came = all(
            rollout.termination is Termination.MODEL_ERROR for group in groups for rollout in group
        )
        return groups

    def push(self, weights: Mapping[str, Tensor]) -> None:
        """The weights are on the server already: sample with those from here on."""
        self.remote.push()

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, state: Mapping[str, int]) -> None:
        """Nothing is kept."""
