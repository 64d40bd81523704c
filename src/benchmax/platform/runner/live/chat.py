"""A conversation with a checkpoint in its environment: with its system prompt, its live tools, its reward for a task.

One chat is one rollout in which a person writes the user's turns: what the environment keeps for a rollout lasts as
long as the chat. A turn that is cut off is removed from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ChatMessage, Example, Messages, RewardValue
from benchmax.errors import BenchmaxError, EnvError, UsageError
from benchmax.inference.local_model import LocalModel
from benchmax.models.base import Sampling, Usage
from benchmax.platform.runner.live.models import StreamedModel
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import new_rollout, open_rollout, play
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import finish, score
from benchmax.rollouts.settings import RolloutSettings

Send = Callable[[Mapping[str, Any]], None]

DEFAULTS: dict[str, Any] = {"temperature": 0.7, "max_tokens": 512}
"""How a turn is sampled unless the request says otherwise."""
_ENDINGS = {
    Termination.CONTEXT_EXCEEDED: "The conversation no longer fits the model. Open a new session.",
    Termination.TIME_BUDGET: "The turn took too long and was ended. Try again.",
}


class NoEnv(BaseEnv):
    """The model alone."""

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        return {}


@dataclass(slots=True)
class Turn:
    """A user's message, and where its answer goes."""

    request: Mapping[str, Any]
    send: Send
    done: asyncio.Future[None]
    task: asyncio.Task[None] | None = None
    began: float = field(default_factory=time.monotonic)


@dataclass
class Chat:
    """Holds a conversation with a model in an environment."""

    host: EnvHost
    model: LocalModel
    example: Example | None
    shown: Sequence[ChatMessage]
    """The turns with which every prompt of the environment begins: what is typed comes after them."""
    tools: list[dict[str, Any]]
    system_prompt: str
    inbox: asyncio.Queue[Turn] = field(default_factory=asyncio.Queue)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, host: EnvHost, model: LocalModel, example: Example | None, shown: Sequence[ChatMessage] = ()
    ) -> AsyncIterator[Chat]:
        """A chat whose turns are played until the block ends."""
        part = host.part_of(example) if example else next(iter(host.env.composed_of), "")
        tools = [asdict(tool) for tool in (await host.toolbox(part)).tools]
        chat = cls(host, model, example, shown, tools, host.system_prompt(part))
        # All turns are played in one task: context variables of the rollout (its logs, its id) belong to the task.
        player = asyncio.create_task(chat._play_turns(), name="benchmax-chat")
        try:
            yield chat
        finally:
            player.cancel()
            with suppress(asyncio.CancelledError):
                await player

    def about(self) -> dict[str, Any]:
        prompt = list(self.example["prompt_messages"] if self.example else self.shown)
        about = {"model": self.model.name, "system_prompt": self.system_prompt, "tools": self.tools}
        return {**about, "prompt_messages": prompt}

    async def answer(self, request: Mapping[str, Any], send: Send) -> None:
        """Play a message and send what follows; if cancelled, the message is removed."""
        turn = Turn(request, send, asyncio.get_running_loop().create_future())
        self.inbox.put_nowait(turn)
        try:
            await turn.done
        except BenchmaxError as error:
            send({"event": "error", "message": str(error)})
        except asyncio.CancelledError:
            if turn.task is not None:
                turn.task.cancel()
            raise

    async def _play_turns(self) -> None:
        while True:
            turn = await self.inbox.get()
            try:
                rollout = await self._begin(str(turn.request.get("content") or ""), bool(turn.request.get("own")))
            except Exception as error:
                _settle(turn, error if isinstance(error, BenchmaxError) else UsageError(f"{error}"))
                continue
            async with open_rollout(self.host, rollout, RolloutSettings()) as ready:
                await self._converse(rollout, turn, ready)

    async def _begin(self, content: str, own: bool) -> Rollout:
        """The chat's rollout, with the example's prompt, or with the first message (`own`: in its place)."""
        played = None if own and content else self.example
        example = played or await self._typed(content)
        rollout = new_rollout(self.host, example, self.model, sample=0, attempt=0, split="playground", step=None)
        if played is not None and content:
            rollout.messages.append({"role": "user", "content": content})
            rollout.messages.completion_start = len(rollout.messages)
        return rollout

    async def _typed(self, content: str) -> Example:
        if not content:
            raise UsageError("The message is empty. Say something.")
        env = type(self.host.env)
        made = await asyncio.to_thread(lambda: env.playground_preprocess(prompt=content))
        return _as_trained(made, content, self.shown)

    async def _converse(self, rollout: Rollout, turn: Turn, ready: bool) -> None:
        """Play turn after turn in one rollout; a chat whose first turn is removed starts over."""
        if not ready:
            why = rollout.error.message if rollout.error else "it gave no reason"
            _settle(turn, EnvError(f"init_rollout failed: {why}"))
            return
        length = 0
        while True:
            if not await self._was_played(rollout, turn):
                del rollout.messages[length:]
            if not rollout.messages:
                return
            length = len(rollout.messages)
            turn = await self.inbox.get()
            rollout.messages.append({"role": "user", "content": str(turn.request.get("content") or "")})

    async def _was_played(self, rollout: Rollout, turn: Turn) -> bool:
        """Play a turn, unless its client has left already; returns whether it came to its end."""
        if turn.done.cancelled():
            return False
        turn.task = asyncio.create_task(self._turn(rollout, turn))
        try:
            await asyncio.wait([turn.task])
        finally:
            turn.task.cancel()
        error = None if turn.task.cancelled() else turn.task.exception()
        _settle(turn, error)
        return error is None and not turn.task.cancelled()

    async def _turn(self, rollout: Rollout, turn: Turn) -> None:
        request, send = turn.request, turn.send
        given = {name: request[name] for name in ("temperature", "max_tokens", "seed") if request.get(name) is not None}
        settings = RolloutSettings(sampling=Sampling(**DEFAULTS | given))
        _clear(rollout)
        model = StreamedModel(self.model, lambda text: send({"event": "token", "text": text}))

        def send_messages(_: Rollout, messages: Sequence[ChatMessage]) -> None:
            for message in messages:
                send({"event": "message", "message": message})

        await play(self.host, rollout, model, settings, send_messages)
        if problem := _ENDINGS.get(rollout.termination) or (rollout.error and rollout.error.message):
            raise EnvError(problem)
        if rollout.task is not None and rollout.scorable:
            await score(self.host, rollout, settings)
            finish(self.host, rollout, settings)
            send({"event": "reward", "rewards": rollout.rewards, "total": rollout.reward, "unscored": rollout.unscored})
        used = {"tokens": rollout.usage.completion_tokens, "promptTokens": rollout.usage.prompt_tokens}
        seconds = round(time.monotonic() - turn.began, 3)
        send({"event": "done", **used, "seconds": seconds, "finish": rollout.termination.value})


def shared_turns(prompts: Sequence[Sequence[ChatMessage]]) -> list[ChatMessage]:
    """The turns with which all prompts begin, such as worked examples, before what each of them asks."""
    bare = [_without_system(prompt)[:-1] for prompt in prompts]
    if not bare:
        return []
    shared = takewhile(lambda turns: all(turn == turns[0] for turn in turns), zip(*bare, strict=False))
    return [turns[0] for turns in shared]


def _as_trained(example: Example, content: str, shown: Sequence[ChatMessage]) -> Example:
    """What was typed, after the turns that training prompts begin with; an environment's own prompt stays unchanged."""
    prompt = example["prompt_messages"]
    if _without_system(prompt) != [{"role": "user", "content": content}]:
        return example
    return {**example, "prompt_messages": [*prompt[:-1], *shown, prompt[-1]]}


def _without_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return [message for message in messages if message.get("role") != "system"]


def _clear(rollout: Rollout) -> None:
    """Remove what the last turn left: every message has budgets of its own."""
    rollout.turns, rollout.usage, rollout.error, rollout.reward = 0, Usage(), None, None
    rollout.termination = Termination.UNKNOWN
    for kept in (rollout.rewards, rollout.unscored, rollout.tokens, rollout.tool_events, rollout.logs):
        kept.clear()


def _settle(turn: Turn, error: BaseException | None) -> None:
    if turn.done.done():
        return
    if error is None:
        turn.done.set_result(None)
    else:
        turn.done.set_exception(error if isinstance(error, BenchmaxError) else EnvError(f"The turn failed: {error}"))
