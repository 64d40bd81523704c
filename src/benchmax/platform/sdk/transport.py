"""Carries out what `calls` describes, over a blocking or an async HTTP client.

An `Exchange` sends a bearer key, raises errors as exceptions, and repeats GETs within a budget: three tries, thirty
seconds; `Retry-After` is honoured within that. It is written once, as async functions over one of two backends: the
functions of the blocking one never wait.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, Self, TypeAlias, TypeVar

from benchmax import retries
from benchmax.errors import ConfigError
from benchmax.net.sse import read_events
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.calls import FIT, Awaiting, Blocking, EventStream, Request, Row, as_is, run_blocking
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.exceptions import AuthenticationError, TrainerError

TRIES = 3
BUDGET_SECONDS = 30.0
AWAY_SECONDS = 60.0
"""How long a poll continues without an answer."""
_DOWNLOAD_SECONDS = 120.0
_PIECE_BYTES = 1 << 20

T = TypeVar("T")


class _Blocking:
    """HTTP and pauses that block; its async functions never wait."""

    def __init__(self, timeout: float) -> None:
        self.http = _httpx().Client(timeout=timeout, follow_redirects=False)

    async def request(self, method: str, url: str, **options: Any) -> Any:
        return self.http.request(method, url, **options)

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Any) -> AsyncIterator[Any]:
        with self.http.stream(method, url, **options) as answer:
            yield answer

    async def read(self, answer: Any) -> None:
        answer.read()

    async def pieces(self, answer: Any, size: int | None = None) -> AsyncIterator[bytes]:
        for piece in answer.iter_bytes(size):
            yield piece

    def content(self, file: IO[bytes]) -> Any:
        return file

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this backend blocks

    async def in_thread(self, function: Callable[[], T]) -> T:
        return function()


class _Async:
    """The same on an event loop."""

    def __init__(self, timeout: float) -> None:
        self.http = _httpx().AsyncClient(timeout=timeout, follow_redirects=False)

    async def request(self, method: str, url: str, **options: Any) -> Any:
        return await self.http.request(method, url, **options)

    def stream(self, method: str, url: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        return self.http.stream(method, url, **options)  # type: ignore[no-any-return]

    async def read(self, answer: Any) -> None:
        await answer.aread()

    def pieces(self, answer: Any, size: int | None = None) -> AsyncIterator[bytes]:
        return answer.aiter_bytes(size)  # type: ignore[no-any-return]

    async def content(self, file: IO[bytes]) -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)


_Backend: TypeAlias = _Blocking | _Async


class Exchange:
    """Requests to one platform, with its key."""

    def __init__(self, backend: _Backend, base_url: str, token: Callable[[], str], timeout: float) -> None:
        self.base_url = base_url
        self._backend = backend
        self._find_token = token
        self._timeout = timeout
        self.upload_timeout = timeout

    async def ask(self, request: Request[T]) -> T:
        """The answer's JSON as the request reads it; AuthenticationError or TrainerError otherwise."""
        options = {"headers": await self._bearer(), **request.options()}
        answer = await self._send(request.method, self.base_url + request.path, **options)
        if not answer.is_success:
            raise failure(answer)
        try:
            found = answer.json()
        except ValueError:
            raise TrainerError(
                f"{self.base_url} answered something that is not JSON. Check the platform's address.",
                answer.status_code,
            ) from None
        try:
            return request.parse(found)
        except (LookupError, TypeError):
            raise TrainerError(f"The platform's answer is incomplete. {FIT}", answer.status_code) from None

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await self._backend.pause(seconds)

    async def poll(
        self, request: Request[T], done: Callable[[T], bool], every: float, seconds: float = float("inf")
    ) -> T:
        """Repeat a request until its answer is `done`; returns the latest answer when `seconds` are over.

        A server that has answered once may be away for a while, as when it restarts.
        """
        deadline = time.monotonic() + seconds
        found = await self.ask(request)
        answered = time.monotonic()
        while not done(found) and time.monotonic() + every <= deadline:
            await self.pause(every)
            try:
                found = await self.ask(request)
                answered = time.monotonic()
            except TrainerError as error:
                away = error.status_code is None or error.status_code in retries.BUSY
                if not away or time.monotonic() - answered > AWAY_SECONDS:
                    raise
        return found

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call a function that computes or reads files; in async code, in a thread."""
        return await self._backend.in_thread(function)

    async def token(self) -> str | None:
        """The key to send to the platform; None if there is none."""
        try:
            return await self.in_thread(self._find_token)  # a sign-in's token is fetched from the platform
        except AuthenticationError:
            return None

    async def put(self, url: str, mime_type: str, opened: AbstractContextManager[bytes | IO[bytes]]) -> None:
        """Send a file to an address that the platform returned; the address is the credential."""
        headers = {"Content-Type": mime_type, "x-ms-blob-type": "BlockBlob"}
        with opened as content:
            sent: Any = content
            if not isinstance(content, bytes):
                headers["Content-Length"] = str(os.fstat(content.fileno()).st_size)
                sent = self._backend.content(content)
            answer = await self._send("PUT", url, content=sent, headers=headers, timeout=self.upload_timeout)
        if not answer.is_success:
            raise failure(answer)

    async def download(self, path: str, file: Path) -> bool:
        """Write an answer into a file; False when the platform is still preparing it (202)."""
        options = {"headers": await self._bearer(), "timeout": _DOWNLOAD_SECONDS}
        try:
            async with self._stream("GET", path, options) as answer:
                if answer.status_code == 202:
                    return False
                await self._refuse(answer)
                with open(file, "wb") as out:  # noqa: ASYNC230 - the pieces are small
                    async for piece in self._backend.pieces(answer, _PIECE_BYTES):
                        out.write(piece)
        except _httpx().ConnectError as error:
            raise self._unreachable(error) from error
        except _httpx().TransportError as error:
            raise TrainerError(f"The download from {self.base_url} broke off: {error!r}. Try it again.") from error
        return True

    async def events(self, stream: EventStream) -> AsyncGenerator[Row]:
        """The events of a stream, until the server ends it."""
        headers = {**await self._bearer(), **stream.headers}
        timeout = self._timeout if stream.timeout is None else stream.timeout
        options = {"json": stream.json, "headers": headers, "timeout": timeout}
        try:
            async with self._stream(stream.method, stream.path, options) as answer:
                await self._refuse(answer, stream.refused)
                async for data in read_events(self._backend.pieces(answer)):
                    yield json.loads(data)
        except _httpx().ConnectError as error:
            raise self._unreachable(error, stream.broken) from error
        except (_httpx().TransportError, ValueError) as error:
            raise stream.broken(f"The stream broke off: {error or type(error).__name__}. Try again.") from error

    @asynccontextmanager
    async def _stream(self, method: str, path: str, options: dict[str, Any]) -> AsyncIterator[Any]:
        with _usable():
            async with self._backend.stream(method, self.base_url + path, **options) as answer:
                yield answer

    async def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {await self.in_thread(self._find_token)}"}

    async def _refuse(self, answer: Any, kinds: Callable[[int], type[TrainerError]] | None = None) -> None:
        if not answer.is_success:
            await self._backend.read(answer)
            raise failure(answer, kinds)

    async def _send(self, method: str, url: str, **options: Any) -> Any:
        """One request, repeated within the budget where that does no harm."""
        start = time.monotonic()
        for tried in range(1, TRIES + 1):
            asked, lost = 0.0, None
            try:
                with _usable():
                    answer = await self._backend.request(method, url, **options)
                if answer.status_code not in retries.BUSY:
                    return answer
                asked = retries.retry_after(answer.headers) or 0.0
            except _httpx().InvalidURL as error:
                raise TrainerError(f"{url!r} is not an address: {error}. Check it.") from None
            except _httpx().TransportError as error:
                lost = error
            pause = max(retries.pause(tried, 1.0, BUDGET_SECONDS), asked)
            if method != "GET" or tried == TRIES or time.monotonic() - start + pause > BUDGET_SECONDS:
                break
            await self.pause(pause)
        if lost is not None:
            raise self._unreachable(lost) from None  # it is quoted; its own trace is long and of no use
        return answer

    def _unreachable(self, error: Exception, kind: type[TrainerError] = TrainerError) -> TrainerError:
        if isinstance(error, _httpx().TimeoutException):
            return kind(f"{self.base_url} did not answer in time. Check that it runs, or raise timeout=.")
        return kind(
            f"Cannot reach {self.base_url}: {str(error) or type(error).__name__}. Check that the platform runs "
            "(`benchmax up` starts one here) and that its address is right."
        )


class Endpoint:
    """What both connections share: the platform's address, and how to find the key for it."""

    _backend_kind: type[_Backend]

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        self.base_url = credentials.base_url(base_url)
        if not isinstance(timeout, int | float) or timeout <= 0:
            raise ConfigError(f"timeout is {timeout!r}. Give a number of seconds above 0.")
        backend = self._backend_kind(timeout)
        self._http = backend.http
        self._exchange = Exchange(
            backend, self.base_url, lambda: credentials.bearer(api_key, token_provider, self.base_url), timeout
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"


class Connection(Endpoint, Blocking):
    """A blocking connection. Threads may use one together."""

    _backend_kind = _Blocking

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, route: str, /, **params: Any) -> Any:
        return run_blocking(self._exchange.ask(Request("GET", route, as_is, params)))


class AsyncConnection(Endpoint, Awaiting):
    """The same for async code, on one event loop."""

    _backend_kind = _Async

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def failure(answer: Any, kinds: Callable[[int], type[TrainerError]] | None = None) -> TrainerError:
    """The exception for an answer that is not a success, with the server's message."""
    status: int = answer.status_code
    text = error_text(answer)
    if status == 401:
        return AuthenticationError(f"{text} (401)", 401)
    return (kinds(status) if kinds else TrainerError)(f"{text} ({status})", status)


@contextmanager
def _usable() -> Iterator[None]:
    """Raise what a client that is closed, or belongs to another event loop, raises as a TrainerError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, TrainerError) or not re.search("closed|different (event )?loop", str(error)):
            raise
        raise TrainerError(
            f"This client cannot be used: {error} Make one for each event loop, and close it when all is done."
        ) from error


def error_text(answer: Any) -> str:
    """The `error` field, or the raw text."""
    try:
        words = answer.json()["error"]
        return words if isinstance(words, str) else str(words)
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:500] or "The platform gave no reason"


def _httpx() -> Any:
    """Imported when a client is created, so that importing the SDK stays fast."""
    import httpx2

    return httpx2
