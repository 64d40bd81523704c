"""An event loop in a thread of its own, for connections that outlive the event loops of their callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from benchmax.cross_loop import LoopCalls, settle
from benchmax.errors import McpError

Result = TypeVar("Result")


class IoLoop:
    """Runs coroutines for callers on any event loop, or on none."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._inbox = LoopCalls(self.loop)
        self._tasks: set[asyncio.Task[Any]] = set()
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
        if self.loop.is_closed():
            raise McpError("The environment was shut down. Make a new one.")
        here = asyncio.get_running_loop()
        replies, future = LoopCalls.of(here), here.create_future()
        tasks: list[asyncio.Task[Result]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(work()))
            tasks[0].add_done_callback(reply)

        def reply(task: asyncio.Task[Result]) -> None:
            shut = "The environment was shut down meanwhile. Make a new one."
            error = McpError(shut) if task.cancelled() else task.exception()
            replies.schedule_from(self.loop, settle, future, None if error is not None else task.result(), error)

        self._inbox.schedule_from(here, begin)
        try:
            result: Result = await future
            return result
        except asyncio.CancelledError:
            self._inbox.schedule_from(here, lambda: [task.cancel() for task in tasks])
            raise

    def begin(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine on this loop without waiting for it."""
        self._inbox.schedule(lambda: self._keep(self.loop.create_task(work())))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """A loop itself holds its tasks only weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5.0)
