"""Which threads a route's function runs in, so that readers wait neither for writers nor for large files.

A write waits, in its thread, for a database that is locked; a file is read for seconds. In one pool for all, sixteen of
either would hold up every other request. So each kind has threads of its own. One user has few of those for files.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter

from benchmax.concurrency import PerLoop
from benchmax.platform.server.security.rate_limits import ConcurrencyLimit
from benchmax.platform.server.security.scopes import SAFE_METHODS

Kind: TypeAlias = Literal["reads", "writes", "files"]
P = ParamSpec("P")
T = TypeVar("T")

THREADS: dict[Kind, int] = {"reads": 16, "writes": 8, "files": 6}
"""More only wait for each other: they share one interpreter."""
FILES_PER_USER = 2
"""Files that are read at one time for one user."""
FILES_ASKED = 16
"""Those that wait for their turn included; more are refused."""


class Router(APIRouter):
    """Runs plain functions of unsafe methods in the writers' threads, and marked ones where `in_threads` says."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        unsafe = set(options.get("methods") or ()) - SAFE_METHODS
        kind: Kind = getattr(endpoint, "threads", "writes" if unsafe else "reads")
        if kind != "reads" and not inspect.iscoroutinefunction(endpoint):
            endpoint = _moved(endpoint, kind)
        super().add_api_route(path, endpoint, **options)


def in_threads(kind: Kind) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a route's function whose HTTP method does not tell what it does."""

    def mark(endpoint: Callable[P, T]) -> Callable[P, T]:
        endpoint.threads = kind  # type: ignore[attr-defined]
        return endpoint

    return mark


def prepare() -> None:
    """Size the pool that FastAPI uses for reads; within an event loop."""
    to_thread.current_default_thread_limiter().total_tokens = THREADS["reads"]


async def run_write(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=_pools.get().writes)


async def read_file(user_id: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that reads a user's file; Refused (429) when too many of the user's wait already."""
    pools = _pools.get()
    words = f"{FILES_ASKED} of your files are being read or wait for it. Try again."
    with pools.asked.hold(user_id, FILES_ASKED, words, seconds=5):
        async with pools.turns.setdefault(user_id, CapacityLimiter(FILES_PER_USER)):
            return await to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=pools.files)


def _moved(endpoint: Callable[..., T], kind: Kind) -> Callable[..., Any]:
    @functools.wraps(endpoint)
    async def run(**given: Any) -> T:
        if kind == "files":
            return await read_file(given["caller"].user_id, endpoint, **given)
        return await run_write(endpoint, **given)

    return run


class _Pools:
    """The threads of one event loop."""

    def __init__(self) -> None:
        self.writes = CapacityLimiter(THREADS["writes"])
        self.files = CapacityLimiter(THREADS["files"])
        self.asked = ConcurrencyLimit()
        self.turns: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()
        """Of users, each for as long as one of the user's files is read."""


_pools = PerLoop(_Pools)
