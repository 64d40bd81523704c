"""An environment held open beside a trainer that is not asynchronous: its own thread and event loop."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from benchmax.envs.base_env import BaseEnv
from benchmax.rollouts.host import EnvHost

T = TypeVar("T")


class EnvSession:
    """Opens an environment once and runs coroutines against it from any thread. Closed at exit, if not before."""

    def __init__(self, env: BaseEnv | Callable[[], BaseEnv]) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="benchmax-adapter", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self.host: EnvHost = self.run(EnvHost(env).__aenter__())
        except BaseException:
            self._stop()
            raise
        atexit.register(self.close)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs on the session's loop; the caller's thread waits for it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` on the session's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            self.run(self.host.__aexit__(None, None, None))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
