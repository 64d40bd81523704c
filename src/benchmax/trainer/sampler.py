"""Where rollouts come from, behind one small port.

The loop asks for groups and pushes new weights; the engine in this process answers. Every rollout draws from a seed of
its own (`rollouts.play.seeded`): a step sampled again gives the same rollouts.
On a CPU first turns start together and in order (`StartingLine`), so that the engine's batches, and with them the last
bits of every log-prob, are the same again too. A GPU does not promise the last bits, and waits for nobody.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from benchmax.envs.types import ChatMessage, Example, ToolDefinition
from benchmax.inference.engine import Engine
from benchmax.inference.local import LocalModel
from benchmax.inference.tokens import ChatTokens
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import TrainConfig

LATE_SECONDS = 1.0
"""Who is not ready by then starts when it is."""

PROMPTS_KEPT = 4_096

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
        at_once = max(1, self.config.rollouts.concurrency // draw.group_size)
        gate = asyncio.Semaphore(at_once)
        settings = rollout_settings(self.config, draw)

        async def one(index: int, example: Example) -> list[Rollout]:
            async with gate:
                model = LinedModel(self.model, index, line)
                samples = range(draw.group_size)
                group = await run_group(
                    self.host, example, model, settings, samples=samples, split=draw.split, step=draw.step
                )
            on_group(group)
            return group

        exact = self.model.engine.device.type == "cpu"
        first = min(at_once, len(examples)) * draw.group_size if exact else 0
        async with StartingLine(self.model.engine, first) as line, asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(index, example)) for index, example in enumerate(examples)]
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
            seed=config.seed,
            logprobs=True,
        ),
    )


class SharedPrompts(ChatTokens):
    """Renders a prompt once for all samples of it: with short answers that is most of the host's work."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self._rendered: dict[str, list[int]] = {}

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition] = ()) -> list[int]:
        key = json.dumps([messages, [[tool.name, tool.description, tool.input_schema] for tool in tools]], default=repr)
        if key not in self._rendered:
            if len(self._rendered) >= PROMPTS_KEPT:
                self._rendered.clear()
            self._rendered[key] = super().prompt(messages, tools)
        return list(self._rendered[key])


class StartingLine:
    """Holds the engine until all first turns are in its queue, in a fixed order."""

    def __init__(self, engine: Engine, expected: int) -> None:
        self._engine = engine
        self._expected = expected
        self._waiting: dict[tuple[int, int], asyncio.Future[None]] = {}
        self._open = not expected
        self._released = threading.Event()
        self._hold: asyncio.Future[object] | None = None

    async def __aenter__(self) -> Self:
        if self._open:
            return self
        loop, holding = asyncio.get_running_loop(), asyncio.Event()

        def hold() -> None:
            loop.call_soon_threadsafe(holding.set)
            self._released.wait()

        self._hold = loop.run_in_executor(None, self._engine.call, hold)
        held = asyncio.ensure_future(holding.wait())
        waits: list[asyncio.Future[Any]] = [self._hold, held]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        held.cancel()
        loop.call_later(LATE_SECONDS, self._go)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._go()
        self._released.set()
        if self._hold is not None:
            await self._hold

    async def wait(self, place: tuple[int, int]) -> None:
        """Wait for the others; who comes late goes at once."""
        if self._open:
            return
        self._waiting[place] = asyncio.get_running_loop().create_future()
        if len(self._waiting) == self._expected:
            self._go()
        await self._waiting[place]

    def _go(self) -> None:
        if self._open:
            return
        self._open = True
        for place in sorted(self._waiting):
            if not self._waiting[place].done():
                self._waiting[place].set_result(None)
        # Runs after the tasks woken above: each hands its turn to the engine before it waits again.
        asyncio.get_running_loop().call_soon(self._released.set)


class LinedModel(ModelClient):
    """A model whose conversations wait for the starting line; their seeds, which never change, tell the order."""

    def __init__(self, model: ModelClient, index: int, line: StartingLine) -> None:
        self.name = model.name
        self._model = model
        self._index = index
        self._line = line

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        place = (self._index, sampling.seed or 0)
        return _Lined(self._model.converse(tools=tools, sampling=sampling), self._line, place)


class _Lined(Conversation):
    def __init__(self, conversation: Conversation, line: StartingLine, place: tuple[int, int]) -> None:
        self._conversation = conversation
        self._line: StartingLine | None = line
        self._place = place

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        if self._line is not None:
            line, self._line = self._line, None
            await line.wait(self._place)
        return await self._conversation.reply(new, max_tokens=max_tokens)

    async def aclose(self) -> None:
        await self._conversation.aclose()
