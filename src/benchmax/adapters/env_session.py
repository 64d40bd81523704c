"""An environment held open beside a trainer that is not asynchronous: its own thread and event loop."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeVar

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.loading import load_env_class, make_env
from benchmax.rollouts.host import EnvHost

logger = logging.getLogger(__name__)

T = TypeVar("T")


class EnvSession:
    """Opens an environment once and runs coroutines against it from any thread. Closed at exit, if not before."""

    def __init__(self, env: BaseEnv | Callable[[], BaseEnv]) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="benchmax-adapter", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self.run(asyncio.to_thread(len, ""))  # one thread is there when none can be started any more, at exit
            self.host: EnvHost = self.run(EnvHost(env).__aenter__())
        except BaseException:
            self._stop()
            raise
        _at_exit(self.close)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs on the session's loop; the caller's thread waits for it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def outcome(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for a caller on another event loop, with which `work` is cancelled."""
        return await asyncio.wrap_future(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` on the session's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
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


_shared: dict[str, EnvSession] = {}
_opening = threading.Lock()


def shared_session(key: str, open_session: Callable[[], EnvSession]) -> EnvSession:
    """The session of this key, opened once in this process and closed at its end."""
    with _opening:
        if key not in _shared:
            _shared[key] = open_session()
        return _shared[key]


def named_session(env: str, env_args: Mapping[str, Any]) -> EnvSession:
    """The environment of this name with these arguments, opened once in this process."""
    arguments = dict(env_args)
    key = json.dumps([env, arguments], sort_keys=True, default=str)
    return shared_session(key, lambda: EnvSession(partial(make_env, load_env_class(env), arguments)))


def _at_exit(close: Callable[[], None]) -> None:
    """Close before the interpreter refuses work for threads, which shutting an environment down may need.

    What `atexit` calls comes after that.
    """
    method = weakref.WeakMethod(close)

    def run() -> None:
        still = method()
        try:
            if still is not None:
                still()
        except RuntimeError as error:  # from Python 3.12 on no thread starts any more
            logger.debug("An environment was not shut down at exit: %s", error)

    getattr(threading, "_register_atexit", atexit.register)(run)
