"""What asyncio lacks: tasks that end together, functions that may be async, coroutines run by sync code, one value for
each event loop, the signals that stop a command."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
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


async def call_function(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that may be async; one that is not runs in a thread of its own."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*args, **kwargs)
    value = await in_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a blocking function in a daemon thread of its own.

    Not in `asyncio.to_thread`, whose pool is small and shared with name resolution: functions that never return would
    block all others and keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: tuple[Any, BaseException | None]) -> None:
        if future.done():
            _discard(outcome[0])
        else:
            future.set_result(outcome)

    def work() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = context.run(function, *args, **kwargs), None
        except BaseException as error:
            outcome = None, error
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:  # the loop is closed, so nobody awaits the outcome
            _discard(outcome[0])

    threading.Thread(target=work, name="benchmax-call", daemon=True).start()
    value, error = await future
    if error is None:
        return value
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        raise error
    raise RuntimeError(f"{type(error).__name__}: {error}")


def _discard(value: Any) -> None:
    """Close a coroutine that nobody will await, so that it does not warn later."""
    if inspect.iscoroutine(value):
        value.close()


def start_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Begin some work in a daemon thread of its own, which does not keep the process from ending."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own in a thread, so that a running loop does not matter."""
    return start_thread(lambda: asyncio.run(coroutine), "benchmax-sync").result()


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
