"""An event loop in a thread of its own, for connections that outlive the event loops of their callers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from benchmax.cross_loop import LoopCalls, settle
from benchmax.errors import EnvError

Result = TypeVar("Result")
MEANWHILE = "The environment was shut down meanwhile. Make a new one."


class IoLoop:
    """Runs coroutines for callers on any event loop, or on none. The thread starts with the first of them.

    After `stop`, calls raise `error`, and so do those that wait for a result.
    """

    def __init__(self, name: str, error: type[EnvError]) -> None:
        self._name, self._error = name, error
        self._inbox: LoopCalls | None = None
        self._stopped = False
        self._changing = threading.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: dict[asyncio.Future[Any], LoopCalls] = {}
        """The results that callers wait for, each with the caller's loop."""

    def _start(self) -> LoopCalls:
        with self._changing:
            if self._stopped:
                raise self._error("The environment was shut down. Make a new one.")
            if self._inbox is None:
                self.loop = asyncio.new_event_loop()
                self._inbox = LoopCalls(self.loop)
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            return self._inbox

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:  # which cancels what is left at the end
            runner.get_loop().run_forever()

    async def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine on this loop and wait for it on the caller's; cancellation is passed on."""
        context, here = contextvars.copy_context(), asyncio.get_running_loop()
        replies, future = LoopCalls.of(here), here.create_future()
        tasks: list[asyncio.Task[Result]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(work(), context=context))
            tasks[0].add_done_callback(reply)

        def reply(task: asyncio.Task[Result]) -> None:
            error = self._error(MEANWHILE) if task.cancelled() else task.exception()
            replies.schedule_from(self.loop, settle, future, None if error is not None else task.result(), error)

        self._waiting[future] = replies  # before `_stopped` is read: `stop` writes and reads in the other order
        try:
            inbox = self._start()
            inbox.schedule_from(here, begin)
            result: Result = await future
            return result
        except asyncio.CancelledError:
            inbox.schedule_from(here, lambda: [task.cancel() for task in tasks])
            raise
        finally:
            del self._waiting[future]

    def begin(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine on this loop without waiting for it; none after `stop`."""
        if not self._stopped:
            self._start().schedule(lambda: self._keep(self.loop.create_task(work())))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """A loop itself holds its tasks only weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def runs(self) -> bool:
        """Whether anything was run, and can be."""
        return self._inbox is not None and not self._stopped

    def stop(self) -> None:
        with self._changing:
            running, self._stopped = self.runs, True
        if running:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5.0)
        for future, replies in list(self._waiting.items()):  # some may not have begun, and never will
            replies.schedule(settle, future, None, self._error(MEANWHILE))
