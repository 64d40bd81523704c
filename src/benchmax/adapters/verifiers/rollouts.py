"""One rollout for verifiers: our environment and tools in this process, the model behind verifiers' endpoint.

The environment is opened once for the process, on a thread and event loop of its own. Siblings that are scored
together stay open after their last turn, until all of them have been played: verifiers plays them one after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmax.adapters.env_session import EnvSession
from benchmax.envs.types import Example
from benchmax.errors import UsageError
from benchmax.models.http import HttpModel
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import new_rollout, open_rollout, play
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import finish, score, settle_group
from benchmax.rollouts.settings import RolloutSettings


def messages_of(data: Any) -> list[dict[str, Any]]:
    """The prompt of verifiers' task data, its system prompt first."""
    from verifiers.v1.dialects.chat import message_to_wire

    prompt = [{"role": "user", "content": data.prompt}] if isinstance(data.prompt, str) else data.prompt
    messages = [message if isinstance(message, dict) else message_to_wire(message) for message in prompt or ()]
    if data.system_prompt is not None:
        messages.insert(0, {"role": "system", "content": data.system_prompt})
    return messages


@dataclass(frozen=True, slots=True)
class Assignment:
    """One rollout to play."""

    id: str
    """The id of verifiers' trace."""
    example: Example
    model: HttpModel
    settings: RolloutSettings
    refused: Callable[[], str | None]
    """Why verifiers refused a turn, once it has."""


@dataclass
class Siblings:
    """The rollouts of one episode, which are scored together."""

    played: dict[str, Rollout] = field(default_factory=dict)
    _running: list[Future[Rollout]] = field(default_factory=list)
    _scored: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, session: EnvSession, work: Assignment) -> Rollout:
        """Play one of them, and leave it open."""
        over: Future[Rollout] = Future()
        running = session.start(_play(session.host, work, partial(self._wait, over)))
        running.add_done_callback(partial(_pass_on, over))
        self._running.append(running)
        try:
            rollout = self.played[work.id] = await asyncio.wrap_future(over)
        except asyncio.CancelledError:
            running.cancel()
            raise
        return rollout

    async def _wait(self, over: Future[Rollout], rollout: Rollout) -> None:
        over.set_result(rollout)
        await self._scored.wait()

    async def score(self, session: EnvSession, settings: RolloutSettings, ids: list[str]) -> list[Rollout]:
        """Score those of these traces against one another, and release all."""
        members = [self.played[each] for each in ids if each in self.played]
        await session.outcome(self._score(session.host, settings, members))
        return members

    async def _score(self, host: EnvHost, settings: RolloutSettings, members: list[Rollout]) -> None:
        await settle_group(host, members, settings)
        self._scored.set()
        await asyncio.gather(*map(asyncio.wrap_future, self._running), return_exceptions=True)

    def release(self) -> None:
        """Let go of what is still open."""
        for running in self._running:
            running.cancel()


SIBLINGS: ContextVar[Siblings | None] = ContextVar("benchmax_siblings", default=None)
"""Those of the episode that is being played, if they are scored together."""


@contextmanager
def siblings() -> Iterator[Siblings]:
    """The rollouts that are played inside the block belong together."""
    group = Siblings()
    token = SIBLINGS.set(group)
    try:
        yield group
    finally:
        SIBLINGS.reset(token)
        group.release()


async def play_one(session: EnvSession, work: Assignment) -> Rollout:
    """Play and score one rollout; with `compute_group_reward` its total comes when its siblings are scored."""
    if not session.host.overrides("compute_group_reward"):
        return await session.outcome(_play(session.host, work, None))
    group = SIBLINGS.get()
    if group is None:
        raise UsageError(
            f"{session.host.name} scores siblings together (compute_group_reward), and verifiers plays each rollout by "
            "itself. Leave --env.id out, and say with --env.siblings N how many belong together."
        )
    return await group.play(session, work)


async def _play(host: EnvHost, work: Assignment, wait: Callable[[Rollout], Any] | None) -> Rollout:
    rollout = new_rollout(host, work.example, work.model, split="train")
    try:
        async with open_rollout(host, rollout, work.settings) as ready:
            if ready:
                await play(host, rollout, work.model, work.settings)
                _end_as_refused(rollout, work.refused())
                if rollout.scorable:
                    await score(host, rollout, work.settings)
            if wait:
                await wait(rollout)
    finally:
        await work.model.aclose()
    finish(host, rollout, work.settings)
    return rollout


def _end_as_refused(rollout: Rollout, reason: str | None) -> None:
    """A turn that verifiers refused for a limit of its own is no failure of the model."""
    if reason is None or rollout.termination is not Termination.MODEL_ERROR or not rollout.turns:
        return
    rollout.error = None
    rollout.termination = Termination.TOKEN_BUDGET if "tokens" in reason else Termination.MAX_TURNS


def _pass_on(over: Future[Rollout], running: Future[Rollout]) -> None:
    """Pass the reason on to those who wait for a rollout that ended before it was handed over."""
    if over.done():
        return
    if running.cancelled():
        over.cancel()
    elif error := running.exception():
        over.set_exception(error)
