"""`EnvHost`: one environment, its hooks called from any number of rollouts."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from benchmax import limits
from benchmax.deadlines import current_seconds, deadlines
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.logging import listen_to
from benchmax.errors import EnvDefinitionError
from benchmax.mailbox import Mailbox
from benchmax.rollouts.hooks import Call, Conduct, HomeLoop, HookThreads
from benchmax.rollouts.toolbox import Toolbox

logger = logging.getLogger(__name__)

SHORT_WAIT = 0.01
"""Holding the loop this long may be chance (other threads take their turns); more often is not."""


class EnvHost:
    """Calls an environment's hooks apart from the caller's loop, each with a deadline.

        async with EnvHost(MyEnv) as host:
            rollout = await run_rollout(host, example, model)

    Takes an instance, a class, or a function that makes one; the latter two are built on the home loop.
    """

    def __init__(self, env: BaseEnv | Callable[[], BaseEnv]) -> None:
        self._make = env if not isinstance(env, BaseEnv) else None
        self._env = env if isinstance(env, BaseEnv) else None
        self._home: HomeLoop | None = None
        self._threads: HookThreads | None = None
        self._replies: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()
        self._alone: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._suspending: set[str] = set()
        self._blocking: set[str] = set()
        self._warned: set[str] = set()
        self._waited: defaultdict[str, float] = defaultdict(float)
        self._old_homes: list[HomeLoop] = []
        self._watch: asyncio.Task[None] | None = None
        self._toolbox: Toolbox | None = None

    @property
    def env(self) -> BaseEnv:
        if self._env is None:
            raise EnvDefinitionError("This EnvHost is not open. Use it as `async with EnvHost(env) as host:`.")
        return self._env

    @property
    def is_open(self) -> bool:
        return self._home is not None

    @property
    def name(self) -> str:
        return type(self.env).__name__

    @property
    def blocking_hooks(self) -> frozenset[str]:
        """Hooks that were moved to threads because they block."""
        return frozenset(self._blocking)

    async def __aenter__(self) -> Self:
        self._home = HomeLoop("benchmax-env", self)
        self._threads = HookThreads("benchmax-hook")
        if self._env is None:
            assert self._make is not None
            try:
                build = self._start(self._home, _build, (self._make,), {}, "__init__", "__init__")
                self._env = await self.outcome(build, limits.INIT_SECONDS)
            except BaseException:
                await self._close()
                raise
        # Only now: building an environment may hold its loop for as long as it likes.
        self._watch = asyncio.create_task(self._replace_stalled_homes(), name="benchmax-env-watch")
        listen_to(type(self._env).__module__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if overrides(self.env, "shutdown"):
                await self.call("shutdown", deadline=limits.RELEASE_SECONDS)
        except Exception as failure:
            logger.warning("shutdown of %s failed: %s", self.name, failure)
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._watch:
            self._watch.cancel()
        if self._threads:
            self._threads.stop()
        for home in (self._home, *self._old_homes):
            if home:
                await asyncio.to_thread(home.stop, 2.0)
        self._home = self._threads = None

    def overrides(self, hook: str) -> bool:
        return overrides(self.env, hook)

    def alone(self) -> asyncio.Lock:
        """Held by rollouts that are played one after another."""
        return self._alone.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def toolbox(self) -> Toolbox:
        """The environment's tools, asked for once and checked."""
        if self._toolbox is None:
            tools = await self.call("list_tools", deadline=limits.INIT_SECONDS)
            self._toolbox = Toolbox(tools)
        return self._toolbox

    async def call(self, hook: str, *args: Any, deadline: float, key: str = "", label: str = "", **kwargs: Any) -> Any:
        """Run a hook whose keyword arguments are ours; others might be named like this method's own."""
        return await self.outcome(self.start(hook, args, kwargs, key, label), deadline)

    async def perform(self, function: Callable[..., Any], *args: Any, deadline: float, label: str) -> Any:
        """Run an async function of ours where the environment's own async hooks run, because it calls into it."""
        return await self.outcome(self._start(self._home, function, args, {}, label, label), deadline)

    def start(
        self,
        hook: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str = "",
        label: str = "",
        seconds: float | None = None,
    ) -> Call:
        """Begin a hook, whose `outcome` must be awaited. `key` tells apart calls that may behave differently, `seconds`
        is told to the hook as its time."""
        function = getattr(self.env, hook)
        key = f"{hook}:{key}" if key else hook
        where = self._threads if key in self._blocking or not _is_async(function) else self._home
        return self._start(where, function, args, kwargs, key, label or key, seconds)

    def _start(
        self,
        where: HomeLoop | HookThreads | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        label: str,
        seconds: float | None = None,
    ) -> Call:
        assert where is not None
        loop = asyncio.get_running_loop()
        replies = self._replies.get(loop)
        if replies is None:
            replies = self._replies[loop] = Mailbox(loop)
        call = Call(function, args, kwargs, key, label, replies, loop.create_future())
        if key == "init_rollout":
            call.count_turns()
        if seconds is not None:
            call.context.run(current_seconds.set, seconds)
        where.start(call)
        return call

    async def outcome(self, call: Call, deadline: float) -> Any:
        """What the hook gave. When this is cancelled, so is the hook."""
        call.seconds = deadline
        clock = deadlines(deadline)
        clock.add(call)
        try:
            return await call.future
        except BaseException:
            if call.future.cancelled() or call.cancelled:
                assert call.place is not None
                call.place.cancel(call)
            raise
        finally:
            clock.discard(call)

    def divert(self, call: Call) -> bool:
        """Calls that waited behind the first one seen to block go to threads as well."""
        if call.key not in self._blocking or self._threads is None or call.cancelled:
            return call.cancelled
        call.context = call.context.copy()  # the old one is in use by the loop at this moment
        call.begun = False
        self._threads.start(call)
        return True

    def saw(self, call: Call, conduct: Conduct) -> None:
        """A hook ended. If it blocks and none of its kind ever awaits, its kind moves to threads."""
        if self._env is None:  # it is being built, which may take as long as it likes
            return
        if conduct.awaited:
            self._suspending.add(call.key)
        if conduct.held < SHORT_WAIT:
            return
        self._waited[call.key] += conduct.waited
        if conduct.held < limits.BLOCKING_SECONDS and self._waited[call.key] < limits.BLOCKING_TOTAL_SECONDS:
            return
        if call.key not in self._suspending:
            self._blocking.add(call.key)
        if call.key not in self._warned:
            self._warned.add(call.key)
            logger.warning(
                "%s.%s blocks (%.0f ms); use `await`, or `await asyncio.to_thread(…)` around the slow part.",
                type(self._env).__name__, call.key, conduct.held * 1000,
            )  # fmt: skip

    async def _replace_stalled_homes(self) -> None:
        while True:
            await asyncio.sleep(limits.STALL_SECONDS / 5)
            home = self._home
            if home is None or home.stalled() < limits.STALL_SECONDS:
                continue
            logger.warning(
                "%s has held its environment for %.0f s and is given up.", home.culprit(), limits.STALL_SECONDS
            )
            self._home = HomeLoop("benchmax-env", self)
            self._old_homes.append(home)
            for call in home.take_back():
                call.context = call.context.copy()  # the old loop may still enter the first one
                self._home.start(call)
            home.interrupt()


def _is_async(hook: Callable[..., Any]) -> bool:
    return _is_async_function(getattr(hook, "__func__", hook))


_is_async_function = lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


async def _build(make: Callable[[], BaseEnv]) -> BaseEnv:
    env = make()
    if not isinstance(env, BaseEnv):
        raise EnvDefinitionError(f"{make!r} gave {type(env).__name__}, not a BaseEnv. Return an environment from it.")
    return env
