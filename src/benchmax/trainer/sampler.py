"""Where rollouts come from, behind one small port.

The loop asks for groups and pushes new weights; the engine in this process answers. Every rollout draws from a seed of
its own (`rollouts.play.seeded`): a step sampled again gives the same rollouts.
On a CPU the engine starts afresh each time, with the memory it had before, and turns start in rounds, together and in
order (`StartingLine`), so that the engine's batches, and with them the last bits of every log-prob, are the same again
too. A GPU does not promise the last bits, and waits for nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from benchmax.envs.types import ChatMessage, Example, Messages, ToolDefinition
from benchmax.inference.engine.engine import Engine
from benchmax.inference.engine.kv_cache import free_memory
from benchmax.inference.local import LocalModel
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import TrainConfig

LATE_SECONDS = 2.0
"""How long a round waits for those between two turns; who is not ready by then starts when it is."""
LOOKS = 40
"""Pieces that wait is made of: a process that was stopped for a while, or starved, has waited for one of them only."""

PROMPTS_KEPT = 4_096

Place = tuple[int, int]
"""A rollout's place in the order: its example's number and its seed."""
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

    def state(self) -> dict[str, int]:
        """What a checkpoint keeps of it."""
        ...

    def restore(self, state: Mapping[str, int]) -> None: ...


class EngineSampler:
    """Samples with the local engine, in the user's environment."""

    def __init__(self, host: EnvHost, model: LocalModel, config: TrainConfig) -> None:
        self.host = host
        self.model = model
        self.config = config

    async def sample(self, examples: Sequence[Example], draw: Draw, on_group: OnGroup) -> list[list[Rollout]]:
        at_once = max(1, self.config.rollouts.concurrency // draw.group_size)
        if self.model.engine.device.type != "cpu":
            return await self._play(examples, draw, on_group, at_once, members=0)
        await asyncio.to_thread(self.model.engine.start_afresh)
        groups: list[list[Rollout]] = []
        for first in range(0, len(examples), at_once):
            part = examples[first : first + at_once]
            groups += await self._play(part, draw, on_group, at_once, members=len(part) * draw.group_size)
        return groups

    async def _play(
        self, examples: Sequence[Example], draw: Draw, on_group: OnGroup, at_once: int, members: int
    ) -> list[list[Rollout]]:
        gate = asyncio.Semaphore(at_once)
        settings = rollout_settings(self.config, draw)

        async def one(index: int, example: Example) -> list[Rollout]:
            async with gate:
                model = LinedModel(self.model, index, line)
                samples = range(draw.group_size)
                group = await run_group(
                    self.host, example, model, settings, samples=samples, split=draw.split, step=draw.step
                )
                line.leave(draw.group_size - model.opened)  # those that failed before their first turn
            on_group(group)
            return group

        async with StartingLine(self.model.engine, members) as line, asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(index, example)) for index, example in enumerate(examples)]
        return [task.result() for task in running]

    def push(self, weights: Mapping[str, Tensor]) -> None:
        self.model.engine.update_weights(dict(weights))

    def state(self) -> dict[str, int]:
        return {"kv_bytes": self.model.engine.kv_bytes}

    def restore(self, state: Mapping[str, int]) -> None:
        """Take as much memory as the run had before, if that is free: it decides how many rollouts run together."""
        engine = self.model.engine
        if engine.device.type == "cpu" and "kv_bytes" in state:
            engine.kv_bytes = min(state["kv_bytes"], max(engine.kv_bytes, free_memory(engine.device)))


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
    """Renders a conversation once for all samples of it: with short answers that is most of the host's work.

    What is rendered follows from the messages and the tools alone, and those are the key, whole.
    """

    def __init__(self, directory: str | Path) -> None:
        self._rendered: dict[bytes, list[int]] = {}
        self._described: tuple[Sequence[ToolDefinition], str] = ((), "")
        super().__init__(directory)

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition] = ()) -> list[int]:
        return self._once(("prompt", messages), tools, lambda: super(SharedPrompts, self).prompt(messages, tools))

    def after_turn(self, shaped: Messages, tools: Sequence[ToolDefinition]) -> list[int]:
        return self._once(("turn", shaped), tools, lambda: super(SharedPrompts, self).after_turn(shaped, tools))

    def _once(self, what: object, tools: Sequence[ToolDefinition], render: Callable[[], list[int]]) -> list[int]:
        text = f"{what!r}{self._describe(tools)}"
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._rendered:
            if len(self._rendered) >= PROMPTS_KEPT:
                self._rendered.clear()
            self._rendered[key] = render()
        return list(self._rendered[key])

    def _describe(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools in a text; as a rule they are those of the last time."""
        if self._described[0] is not tools:
            self._described = tools, repr([(tool.name, tool.description, tool.input_schema) for tool in tools])
        return self._described[1]


class StartingLine:
    """Starts turns in rounds: when every rollout is back at the line, all go to the idle engine in a fixed order.

    A rollout that takes too long between two turns is not waited for; it goes when it comes.
    """

    def __init__(self, engine: Engine, members: int) -> None:
        self._engine = engine
        self._members = members
        """Rollouts that may still come to the line, or are at it, or run; none: everybody passes."""
        self._waiting: dict[Place, asyncio.Future[None]] = {}
        self._running: set[Place] = set()
        self._in_time: set[Place] = set()
        """Who went in the last round."""
        self._patience: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._released = threading.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._released.set()
        if self._opening is not None:
            await self._opening

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """Wait for the round, then take part in it for the time of the block."""
        try:
            if self._members:
                await self._wait(place)
            yield
        finally:
            self._running.discard(place)
            self._look()

    def leave(self, count: int = 1) -> None:
        """Rollouts have had their last turn."""
        self._members = max(0, self._members - count)
        self._look()

    async def _wait(self, place: Place) -> None:
        if self._running and place not in self._in_time:
            self._running.add(place)  # it missed this round
            return
        self._waiting[place] = asyncio.get_running_loop().create_future()
        self._look()
        try:
            await self._waiting[place]
        finally:
            self._waiting.pop(place, None)

    def _look(self) -> None:
        """Begin a round if nobody runs and all are here; soon, if only some are."""
        if self._running or self._opening is not None or not self._waiting:
            return
        if len(self._waiting) >= self._members:
            self._open()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(LATE_SECONDS / LOOKS, self._wait_on, LOOKS)

    def _wait_on(self, looks: int) -> None:
        if looks > 1:
            self._patience = asyncio.get_running_loop().call_later(LATE_SECONDS / LOOKS, self._wait_on, looks - 1)
        else:
            self._open()

    def _open(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._opening is None and self._waiting and not self._running:
            self._opening = asyncio.create_task(self._start_round())

    async def _start_round(self) -> None:
        """Hold the engine until the turns of all who wait are in its queue."""
        loop, holding = asyncio.get_running_loop(), asyncio.Event()
        self._released.clear()

        def hold() -> None:
            loop.call_soon_threadsafe(holding.set)
            self._released.wait()

        held = loop.run_in_executor(None, self._engine.call, hold)
        at_hold = asyncio.ensure_future(holding.wait())
        both: list[asyncio.Future[Any]] = [held, at_hold]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        at_hold.cancel()
        self._in_time = {place for place, future in self._waiting.items() if not future.done()}
        self._running |= self._in_time
        for place in sorted(self._in_time):
            self._waiting[place].set_result(None)
        # Runs after the tasks woken above: each hands its turn to the engine before it waits again.
        loop.call_soon(self._released.set)
        await asyncio.wait([held])
        if not held.cancelled():
            held.exception()  # a closed engine tells the turns themselves
        self._opening = None
        self._look()


class LinedModel(ModelClient):
    """A model whose turns start at the line; the seeds of conversations, which never change, tell the order."""

    def __init__(self, model: ModelClient, index: int, line: StartingLine) -> None:
        self.name = model.name
        self._model = model
        self._index = index
        self._line = line
        self.opened = 0
        """Conversations so far; each leaves the line by itself."""

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        self.opened += 1
        place = (self._index, sampling.seed or 0)
        return _Lined(self._model.converse(tools=tools, sampling=sampling), self._line, place)


class _Lined(Conversation):
    def __init__(self, conversation: Conversation, line: StartingLine, place: Place) -> None:
        self._conversation = conversation
        self._line = line
        self._place = place

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        async with self._line.turn(self._place):
            return await self._conversation.reply(new, max_tokens=max_tokens)

    async def aclose(self) -> None:
        self._line.leave()
        await self._conversation.aclose()
