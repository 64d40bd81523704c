"""One HTTP connection to the platform: bearer, errors as exceptions, retries with a budget.

Only GETs are repeated: three tries, thirty seconds; `Retry-After` is honoured within that.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self

from benchmax import retries
from benchmax.errors import UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.exceptions import AuthenticationError, TrainerError

TRIES = 3
BUDGET_SECONDS = 30.0
_WORTH_A_RETRY = frozenset({429, 502, 503, 504})


class Connection:
    """What the clients share. Threads may use one together."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        self.base_url = credentials.base_url(base_url)
        self._api_key = api_key
        self._provider = token_provider
        self._http = _client(timeout)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"

    def _token(self) -> str:
        return credentials.bearer(self._api_key, self._provider, self.base_url)

    def _get(self, route: str, /, **params: Any) -> Any:
        given = {name: _plain(value) for name, value in params.items() if value is not None}
        return self._json("GET", route, params=given)

    def _json(self, method: str, path: str, **request: Any) -> Any:
        """The answer's JSON; AuthenticationError or TrainerError otherwise."""
        headers = {"Authorization": f"Bearer {self._token()}"}
        answer = self._send(method, f"{self.base_url}{path}", headers=headers, **request)
        if not answer.is_success:
            raise failure(answer)
        try:
            return answer.json()
        except ValueError:
            raise TrainerError(
                f"{self.base_url} answered something that is not JSON. Check the platform's address.",
                answer.status_code,
            ) from None

    def _send(self, method: str, url: str, **request: Any) -> Any:
        """One request, repeated within the budget when that does no harm."""
        import httpx2

        start = time.monotonic()
        for attempt in range(1, TRIES + 1):
            wait = retries.pause(attempt, 1.0, BUDGET_SECONDS)
            try:
                answer = self._http.request(method, url, **request)
                if answer.status_code not in _WORTH_A_RETRY:
                    return answer
                wait = max(wait, retries.retry_after(answer.headers) or 0.0)
                lost: Exception | None = None
            except httpx2.InvalidURL as error:
                raise TrainerError(f"{url!r} is not an address: {error}. Check it.") from None
            except httpx2.TransportError as error:
                lost = error
            if method != "GET" or attempt == TRIES or time.monotonic() - start + wait > BUDGET_SECONDS:
                break
            time.sleep(wait)
        if lost is None:
            return answer
        raise TrainerError(
            f"Cannot reach {self.base_url}: {lost or type(lost).__name__}. Check that the platform runs "
            "(`benchmax up` starts one here) and that its address is right."
        ) from None  # what was lost is told above; its own trace is long and of no use


def failure(answer: Any, kinds: Callable[[int], type[TrainerError]] | None = None) -> TrainerError:
    """An answer that is no success, as an exception with the server's words."""
    status: int = answer.status_code
    text = error_text(answer)
    if status == 401:
        return AuthenticationError(f"{text} (401)", 401)
    return (kinds(status) if kinds else TrainerError)(f"{text} ({status})", status)


def error_text(answer: Any) -> str:
    """The `error` field, or the raw text."""
    try:
        words = answer.json()["error"]
        return words if isinstance(words, str) else str(words)
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:500] or "The platform gave no reason"


class AsyncTwin:
    """The same client for async code: every method is a coroutine that runs the plain one in a thread."""

    _kind: ClassVar[type[Connection]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sync = self._kind(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.sync, name)
        if name.startswith("_") or not callable(target):
            return target

        if inspect.isgeneratorfunction(target):
            return lambda *args, **kwargs: in_threads(target(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(target, *args, **kwargs)

        call.__name__, call.__doc__ = name, target.__doc__
        return call

    async def aclose(self) -> None:
        await asyncio.to_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def in_threads(items: Generator[Any]) -> AsyncGenerator[Any]:
    """A generator, each of its steps in a thread. Who leaves has it closed: at once, or after the step in flight."""
    end, step = object(), None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(next, items, end))
            if (item := await asyncio.shield(step)) is end:
                return
            yield item
    finally:
        if step is None or step.done():
            await asyncio.to_thread(items.close)
        else:
            step.add_done_callback(lambda done: _close_after(items, done))


def _close_after(items: Generator[Any], step: asyncio.Future[Any]) -> None:
    if not step.cancelled():
        step.exception()  # nobody is left to be told
    with suppress(ValueError):  # the loop ends, and the thread is still in it
        items.close()


def _client(timeout: float) -> Any:
    try:
        import httpx2
    except ImportError:
        raise UsageError("The platform's client needs an extra: pip install 'benchmax[platform]'.") from None
    return httpx2.Client(timeout=timeout, follow_redirects=False)


def _plain(value: Any) -> Any:
    return ("true" if value else "false") if isinstance(value, bool) else value
