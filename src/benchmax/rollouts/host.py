"""`EnvHost`: one environment, its hooks called from any number of rollouts."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Self

from benchmax import limits
from benchmax.concurrency import PerLoop
from benchmax.cross_loop import LoopCalls
from benchmax.deadlines import current_hook_seconds, shared_timer
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.composed.parts import part_of
from benchmax.envs.loading import is_env_class, refuse_unwritten_hooks
from benchmax.envs.logging import listen_to
from benchmax.envs.types import Example
from benchmax.errors import EnvDefinitionError, did_you_mean
from benchmax.rollouts.hooks import SHORT_BLOCK, Call, EnvLoop, HookThreads, LoopUse
from benchmax.rollouts.toolbox import Toolbox

logger = logging.getLogger(__name__)


class EnvHost:
    """Calls an environment's hooks apart from the caller's loop, each with a deadline.

        async with EnvHost(MyEnv) as host:
            rollout = await run_rollout(host, example, model)

    Takes an instance, a class, or a function that makes one; the latter two are called on the environment's loop.
    """

    def __init__(self, env: BaseEnv | Callable[[], BaseEnv]) -> None:
        if not isinstance(env, BaseEnv):
            _check_makes_env(env)
        self._make = env if not isinstance(env, BaseEnv) else None
        self._env = env if isinstance(env, BaseEnv) else None
        self._loop: EnvLoop | None = None
        self._threads: HookThreads | None = None
        self._alone = PerLoop(asyncio.Lock)
        self._awaiting: set[str] = set()
        self._blocking: set[str] = set()
        self._warned: set[str] = set()
        self._idle: defaultdict[str, float] = defaultdict(float)
        self._old_loops: list[EnvLoop] = []
        self._watch: asyncio.Task[None] | None = None
        self._toolboxes: dict[str, Toolbox] = {}
        self._weighted: set[str] = set()
        self._components: set[str] = set()

    @property
    def env(self) -> BaseEnv:
        if self._env is None:
            raise EnvDefinitionError("This EnvHost is not open. Use it as `async with EnvHost(env) as host:`.")
        return self._env

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    @property
    def name(self) -> str:
        return type(self.env).__name__

    @property
    def blocking_hooks(self) -> frozenset[str]:
        """Hooks that were moved to threads because they block."""
        return frozenset(self._blocking)

    async def __aenter__(self) -> Self:
        self._loop = EnvLoop("benchmax-env", self)
        self._threads = HookThreads("benchmax-hook")
        if self._env is None:
            assert self._make is not None
            try:
                self._env = await self.perform(_build, self._make, deadline=limits.INIT_SECONDS, label="__init__")
            except BaseException:
                await self._close()
                raise
        await self._refuse_wrong_prompts()
        # Only now: building an environment may block its loop for as long as it likes.
        self._watch = asyncio.create_task(self._replace_blocked_loops(), name="benchmax-env-watch")
        listen_to(type(self._env).__module__)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._warn_of_unknown_weights()
        try:
            if overrides(self.env, "shutdown"):
                await self.call("shutdown", deadline=limits.RELEASE_SECONDS)
        except Exception as failure:
            logger.warning("shutdown of %s failed: %s", self.name, failure)
        finally:
            await self._close()

    async def _refuse_wrong_prompts(self) -> None:
        try:
            _check_prompts(self.env)
        except EnvDefinitionError:
            await self._close()
            raise

    async def _close(self) -> None:
        if self._watch:
            self._watch.cancel()
        if self._threads:
            self._threads.stop()
        for loop in (self._loop, *self._old_loops):
            if loop:
                await asyncio.to_thread(loop.stop, 2.0)
        self._loop = self._threads = None

    def overrides(self, hook: str) -> bool:
        return overrides(self.env, hook)

    def note_weights(self, weights: Any, components: Iterable[str]) -> None:
        """Note weights and components of a reward; a weight that no component had is warned of when the host closes."""
        self._weighted.update(weights if isinstance(weights, Mapping) else ())
        self._components.update(components)

    def _warn_of_unknown_weights(self) -> None:
        if self.env.composed_of:  # only some of its parts may have been played
            return
        for name in sorted(self._weighted - self._components, key=str):
            hint = did_you_mean(str(name), self._components)
            known = hint or f"The components are: {', '.join(sorted(self._components))}."
            logger.warning(
                "%s weights %r, a component that no rollout had. %s Correct reward_weights, or take it out.",
                self.name, name, known,
            )  # fmt: skip

    def alone(self) -> asyncio.Lock:
        """Held by rollouts that are played one after another."""
        return self._alone.get()

    def part_of(self, example: Example) -> str:
        """The part of a composed environment that the example belongs to; empty in any other environment."""
        name = part_of(example) if self.env.composed_of else ""
        return name if name in self.env.composed_of else ""

    def system_prompt(self, part: str = "") -> str:
        """The system prompt of rollouts of the environment, or of one of its parts."""
        return self.env.composed_of[part]["system_prompt"] if part else self.env.system_prompt

    async def toolbox(self, part: str = "") -> Toolbox:
        """The tools of the environment, or of one of its parts, listed once and checked."""
        if part not in self._toolboxes:
            asked = ("list_part_tools", part) if part else ("list_tools",)
            tools = await self.call(*asked, deadline=limits.INIT_SECONDS)
            if part not in self._toolboxes:  # rollouts that begin together all ask; checking many schemas takes long
                self._toolboxes[part] = Toolbox(tools)
        return self._toolboxes[part]

    async def call(self, hook: str, *args: Any, deadline: float, **kwargs: Any) -> Any:
        """Run a hook and return its result; `start` is for arguments that may be named like those of this method."""
        return await self.outcome(self.start(hook, args, kwargs), deadline)

    async def perform(self, function: Callable[..., Any], *args: Any, deadline: float, label: str) -> Any:
        """Run an async function on the environment's loop, because it calls into the environment."""
        return await self.outcome(self._start(self._loop, function, args, {}, label, label, None), deadline)

    def start(
        self, hook: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str = "", seconds: float | None = None
    ) -> Call:
        """Begin a hook, whose `outcome` must be awaited.

        `key` distinguishes calls that may behave differently (the tool's name); `seconds` is the time limit that the
        hook itself can read.
        """
        function = getattr(self.env, hook)
        kind, label = (f"{hook}:{key}", f"{hook} {key}") if key else (hook, hook)
        where = self._threads if kind in self._blocking or not _is_async(function) else self._loop
        return self._start(where, function, args, kwargs, kind, label, seconds)

    def _start(
        self,
        where: EnvLoop | HookThreads | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: str,
        label: str,
        seconds: float | None,
    ) -> Call:
        assert where is not None
        loop = asyncio.get_running_loop()
        call = Call(function, args, kwargs, kind, label, LoopCalls.of(loop), loop.create_future())
        if kind == "init_rollout":
            call.exclude_queue_time()
        if seconds is not None:
            call.context.run(current_hook_seconds.set, seconds)
        where.start(call)
        return call

    async def outcome(self, call: Call, deadline: float) -> Any:
        """The hook's result. When this is cancelled, so is the hook."""
        call.seconds = deadline
        timer = shared_timer(deadline)
        timer.add(call)
        try:
            return await call.future
        except BaseException:
            if call.future.cancelled() or call.cancelled:
                assert call.runs_on is not None
                call.runs_on.cancel(call)
            raise
        finally:
            timer.discard(call)

    def redirect(self, call: Call) -> bool:
        """Move calls that waited behind the first one seen to block to threads as well."""
        if call.key not in self._blocking or self._threads is None or call.cancelled:
            return call.cancelled
        call.context = call.context.copy()  # the loop uses the old one at this moment
        call.begun = False
        self._threads.start(call)
        return True

    def observe(self, call: Call, use: LoopUse) -> None:
        """A hook ended. If it blocks and no call of its kind ever awaits, its kind moves to threads."""
        if self._env is None:  # it is being built, which may take as long as it likes
            return
        if use.awaited:
            self._awaiting.add(call.key)
        if use.longest < SHORT_BLOCK:
            return
        self._idle[call.key] += use.idle
        if use.longest < limits.BLOCKING_SECONDS and self._idle[call.key] < limits.BLOCKING_TOTAL_SECONDS:
            return
        if call.key not in self._awaiting:
            self._blocking.add(call.key)
        if call.key not in self._warned:
            self._warned.add(call.key)
            logger.warning(
                "%s.%s blocks (%.0f ms); use `await`, or `await asyncio.to_thread(…)` around the slow part.",
                type(self._env).__name__, call.key, use.longest * 1000,
            )  # fmt: skip

    async def _replace_blocked_loops(self) -> None:
        while True:
            await asyncio.sleep(limits.STALL_SECONDS / 5)
            blocked = self._loop
            if blocked is None or blocked.blocked_seconds() < limits.STALL_SECONDS:
                continue
            hook, seconds = blocked.running_hook(), limits.STALL_SECONDS
            logger.warning("%s has blocked its environment's event loop for %.0f s and is abandoned.", hook, seconds)
            self._loop = EnvLoop("benchmax-env", self)
            self._old_loops.append(blocked)
            for call in blocked.take_unstarted():
                call.context = call.context.copy()  # the old loop may still enter the first one
                self._loop.start(call)
            blocked.interrupt()


def _is_async(hook: Callable[..., Any]) -> bool:
    return _is_async_function(getattr(hook, "__func__", hook))


_is_async_function = lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


def _check_makes_env(make: Any) -> None:
    """Raise for what cannot make an environment: no function, or one that needs arguments."""
    if isinstance(make, str):
        raise EnvDefinitionError(
            f"EnvHost takes no name, and was given {make[:80]!r}. Load its class first: EnvHost(load_env_class(name)), "
            "with load_env_class from benchmax.envs.loading."
        )
    if not callable(make):
        raise EnvDefinitionError(
            f"EnvHost was given a {type(make).__name__}. Give an environment, its class, or a function that makes one."
        )
    if is_env_class(make):
        refuse_unwritten_hooks(make)
    if needed := _needed_arguments(make):
        name = getattr(make, "__name__", "Its maker")
        given = ", ".join(f"{each}=…" for each in needed)
        raise EnvDefinitionError(
            f"{name} needs the argument {needed[0]!r}. Give an instance, or a function without arguments that makes "
            f"one: EnvHost(lambda: {name}({given}))."
        )


def _needed_arguments(make: Callable[..., Any]) -> list[str]:
    """The parameters without a default; none where Python does not know them."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return []
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in open_ended]


def _check_prompts(env: BaseEnv) -> None:
    """Raise for a system prompt that is no text, of the environment or of one it is composed of."""
    parts: Mapping[str, Any] = {name: facts["system_prompt"] for name, facts in env.composed_of.items()}
    for name, prompt in {type(env).__name__: env.system_prompt, **parts}.items():
        if not isinstance(prompt, str | None):
            raise EnvDefinitionError(
                f"The system_prompt of {name} is {prompt!r:.60}, which is no text. Write it as a text in quotes."
            )


async def _build(make: Callable[[], BaseEnv]) -> BaseEnv:
    env = make()
    if not isinstance(env, BaseEnv):
        raise EnvDefinitionError(f"{make!r} made a {type(env).__name__}, not a BaseEnv. Return an environment from it.")
    return env
