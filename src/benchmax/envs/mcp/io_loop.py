"""An event loop in a thread of its own, for connections that outlive the event loops of their callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from benchmax.cross_loop import LoopCalls
from benchmax.errors import McpError

Result = TypeVar("Result")


class IoLoop:
    """Runs coroutines for callers on any event loop, or on none."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._inbox = LoopCalls(self.loop)
        self._returns: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls] = WeakKeyDictionary()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    async def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine on this loop and wait for it on the caller's; cancellation is passed on."""
        here = asyncio.get_running_loop()
        if self.loop.is_closed():
            raise McpError("The environment was shut down. Make a new one.")
        returns = self._returns.get(here)
        if returns is None:
            returns = self._returns[here] = LoopCalls(here)
        job = _Job(work, here.create_future(), returns)
        self._inbox.schedule_from(here, job.begin, self.loop)
        try:
            result: Result = await job.future
            return result
        except asyncio.CancelledError:
            self._inbox.schedule_from(here, job.cancel)
            raise

    def begin(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine on this loop without waiting for it."""

        self._inbox.schedule(lambda: _held(self.loop.create_task(work())))

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5.0)


_tasks: set[asyncio.Task[Any]] = set()


def _held(task: asyncio.Task[Any]) -> None:
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class _Job:
    __slots__ = ("_returns", "_task", "_work", "future")

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any], returns: LoopCalls) -> None:
        self._work, self.future, self._returns = work, future, returns
        self._task: asyncio.Task[Any] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._work())
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            error: BaseException | None = McpError("The environment was shut down meanwhile. Make a new one.")
        else:
            error = task.exception()
        value = None if error is not None else task.result()
        self._returns.schedule_from(task.get_loop(), self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(value)
