"""One rollout for verifiers: our environment and tools in this process, the model behind verifiers' endpoint.

The environment is opened once for the process, on a thread and event loop of its own. Siblings that are scored
together stay open after their last turn, until all of them have been played: verifiers plays them one after another.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from benchmax.adapters.env_session import EnvSession
from benchmax.envs.loading import load_env_class, make_env
from benchmax.envs.types import Example
from benchmax.errors import UsageError
from benchmax.models.http import HttpModel
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import new_rollout, open_rollout, play
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import fill_missing_components, finish, score, score_group
from benchmax.rollouts.settings import RolloutSettings

T = TypeVar("T")

_sessions: dict[str, EnvSession] = {}
_opening = threading.Lock()


def session_of(env: str, env_args: Mapping[str, Any]) -> EnvSession:
    """The environment, opened once in this process and closed at its end."""
    key = json.dumps([env, dict(env_args)], sort_keys=True)
    with _opening:
        if key not in _sessions:
            _sessions[key] = EnvSession(partial(make_env, load_env_class(env), dict(env_args)))
        return _sessions[key]


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
        await _on(session, self._score(session.host, settings, members))
        return members

    async def _score(self, host: EnvHost, settings: RolloutSettings, members: list[Rollout]) -> None:
        await score_group(host, members, settings)
        fill_missing_components(members)
        self._scored.set()
        await asyncio.gather(*map(asyncio.wrap_future, self._running), return_exceptions=True)
        for rollout in members:
            finish(host.env, rollout, settings)

    def release(self) -> None:
        """Let go of what is still open."""
        for running in self._running:
            running.cancel()


SIBLINGS: ContextVar[Siblings | None] = ContextVar("benchmax_siblings", default=None)
"""Those of the episode that is being played, if somebody will score them together."""


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
        return await _on(session, _play(session.host, work, None))
    group = SIBLINGS.get()
    if group is None:
        raise UsageError(
            f"{session.host.name} scores siblings together (compute_group_reward), and verifiers plays each rollout by "
            "itself. Leave --env.id out, and say with --env.siblings N how many belong together."
        )
    return await group.play(session, work)


async def _on(session: EnvSession, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which runs on the session's loop and is cancelled with its caller."""
    return await asyncio.wrap_future(session.start(work))


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
    finish(host.env, rollout, work.settings)
    return rollout


def _end_as_refused(rollout: Rollout, reason: str | None) -> None:
    """A turn that verifiers refused for a limit of its own is no failure of the model."""
    if reason is None or rollout.termination is not Termination.MODEL_ERROR or not rollout.turns:
        return
    rollout.error = None
    rollout.termination = Termination.TOKEN_BUDGET if "tokens" in reason else Termination.MAX_TURNS


def _pass_on(over: Future[Rollout], running: Future[Rollout]) -> None:
    """Should a rollout end before it was handed over, whoever waits for it learns why."""
    if over.done():
        return
    if running.cancelled():
        over.cancel()
    elif error := running.exception():
        over.set_exception(error)
