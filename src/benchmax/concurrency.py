"""What asyncio leaves to do: tasks that end together, coroutines run by sync code, one value for each event loop, the
signals that stop a command."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def all_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for all of them; when cancelled, or when one raises, wait until all have cleaned up."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own in a thread, so that a running loop does not matter."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(coroutine))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="benchmax-sync", daemon=True).start()
    return outcome.result()


class PerLoop(Generic[T]):
    """One value for each event loop, made when it is first asked for there."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> T | None:
        """The running loop's, which is forgotten; None when there is none."""
        return self._values.pop(asyncio.get_running_loop(), None)


def stop_signals() -> list[signal.Signals]:
    """Signals on which a command ends cleanly; without SIGHUP under nohup, where a closing terminal stops nothing."""
    outlives_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM] + [signal.SIGHUP] * (not outlives_terminal)
