"""Connections to the platform: they carry out what `calls` describes, one blocking, one async.

Both send a bearer key, raise errors as exceptions, and repeat GETs within a budget: three tries, thirty seconds;
`Retry-After` is honoured within that. This is the only place that reads server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import aclosing, closing
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from benchmax import retries
from benchmax.errors import UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.calls import (
    Call,
    Collect,
    Download,
    EventStream,
    InThread,
    Pause,
    Put,
    Request,
    Row,
    Step,
    as_is,
)
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.exceptions import AuthenticationError, TrainerError

TRIES = 3
BUDGET_SECONDS = 30.0
_WORTH_A_RETRY = frozenset({429, 502, 503, 504})
_DOWNLOAD_SECONDS = 120.0
_PIECE_BYTES = 1 << 20

T = TypeVar("T")


class _Endpoint:
    """What both connections know: the platform's address, and how to get the key for it."""

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
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"

    def _token(self) -> str:
        return credentials.bearer(self._api_key, self._provider, self.base_url)

    def _target(self) -> tuple[str, str | None]:
        try:
            return self.base_url, self._token()
        except AuthenticationError:
            return self.base_url, None

    def _url(self, path: str) -> str:
        return f"{self.base_url}{path}"

    def _stream_options(self, stream: EventStream, token: str) -> dict[str, Any]:
        headers = {**_bearer(token), **stream.headers}
        timeout = self._timeout if stream.timeout is None else stream.timeout
        return {"json": stream.json, "headers": headers, "timeout": timeout}

    def _parsed(self, request: Request[T], answer: Any) -> T:
        """The answer's JSON as the request reads it; AuthenticationError or TrainerError otherwise."""
        if not answer.is_success:
            raise failure(answer)
        try:
            found = answer.json()
        except ValueError:
            raise TrainerError(
                f"{self.base_url} answered something that is not JSON. Check the platform's address.",
                answer.status_code,
            ) from None
        return request.parse(found)

    def _unreachable(self, error: Exception, kind: type[TrainerError] = TrainerError) -> TrainerError:
        return kind(
            f"Cannot reach {self.base_url}: {error or type(error).__name__}. Check that the platform runs "
            "(`benchmax up` starts one here) and that its address is right."
        )

    def _lost(self, stream: EventStream, error: Exception) -> TrainerError:
        import httpx2

        if isinstance(error, httpx2.ConnectError):
            return self._unreachable(error, stream.broken)
        return stream.broken(f"The stream broke off: {error or type(error).__name__}. Try again.")

    def _broke_off(self, error: Exception) -> TrainerError:
        return TrainerError(f"The download from {self.base_url} broke off: {error!r}. Try it again.")


class Connection(_Endpoint):
    """A blocking connection. Threads may use one together."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, base_url, timeout, token_provider)
        self._http = _httpx().Client(timeout=timeout, follow_redirects=False)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(self, route: str, /, **params: Any) -> Any:
        return self._run(Request("GET", route, as_is, params))

    def _json(self, method: str, path: str, *, json: Any = None) -> Any:
        return self._run(Request(method, path, as_is, json=json))

    def _run(self, call: Call[T]) -> T:
        """The result of a request or a procedure."""
        if isinstance(call, Request):
            return self._ask(call)
        with closing(call):
            proceed, value = call.send, None
            while True:
                try:
                    step = proceed(value)
                except StopIteration as done:
                    result: T = done.value
                    return result
                try:
                    proceed, value = call.send, self._perform(step)
                except Exception as error:
                    proceed, value = call.throw, error

    def _perform(self, step: Step) -> Any:
        match step:
            case Request():
                return self._ask(step)
            case Pause():
                return time.sleep(step.seconds)
            case InThread():
                return step.function()
            case Put():
                return self._put(step)
            case Download():
                return self._download(step)
            case Collect():
                with closing(self._events(step.stream)) as events:
                    return list(_up_to(step.until, events))
            case _:
                return self._target()

    def _ask(self, request: Request[T]) -> T:
        options = {"headers": _bearer(self._token()), **request.options()}
        return self._parsed(request, self._send(request.method, self._url(request.path), **options))

    def _send(self, method: str, url: str, **request: Any) -> Any:
        """One request, repeated within the budget where that does no harm."""
        tries = _Tries(self, method, url)
        pause: float | None
        while True:
            try:
                answer = self._http.request(method, url, **request)
            except Exception as error:
                pause = tries.after_error(error)
            else:
                pause = tries.after_answer(answer)
                if pause is None:
                    return answer
            time.sleep(pause)

    def _put(self, put: Put) -> None:
        with put.open() as content:
            options = {"content": content, "headers": _put_headers(put, content), "timeout": put.timeout}
            answer = self._send("PUT", put.url, **options)
        if not answer.is_success:
            raise failure(answer)

    def _download(self, wanted: Download) -> bool:
        options = {"headers": _bearer(self._token()), "timeout": _DOWNLOAD_SECONDS}
        try:
            with self._http.stream("GET", self._url(wanted.path), **options) as answer:
                if answer.status_code == 202:
                    return False
                if not answer.is_success:
                    answer.read()
                    raise failure(answer)
                with open(wanted.file, "wb") as file:
                    for piece in answer.iter_bytes(_PIECE_BYTES):
                        file.write(piece)
        except _httpx().TransportError as error:
            raise self._broke_off(error) from error
        return True

    def _events(self, stream: EventStream) -> Generator[Row]:
        """The events of a stream, until the server ends it."""
        options = self._stream_options(stream, self._token())
        try:
            with self._http.stream(stream.method, self._url(stream.path), **options) as answer:
                if not answer.is_success:
                    answer.read()
                    raise failure(answer, stream.refused)
                for line in answer.iter_lines():
                    if (event := _event(line)) is not None:
                        yield event
        except (_httpx().TransportError, ValueError) as error:
            raise self._lost(stream, error) from error


class AsyncConnection(_Endpoint):
    """The same for async code, on one event loop."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, base_url, timeout, token_provider)
        self._http = _httpx().AsyncClient(timeout=timeout, follow_redirects=False)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, call: Call[T]) -> T:
        """The result of a request or a procedure."""
        if isinstance(call, Request):
            return await self._ask(call)
        with closing(call):
            proceed, value = call.send, None
            while True:
                try:
                    step = proceed(value)
                except StopIteration as done:
                    result: T = done.value
                    return result
                try:
                    proceed, value = call.send, await self._perform(step)
                except Exception as error:
                    proceed, value = call.throw, error

    async def _perform(self, step: Step) -> Any:
        match step:
            case Request():
                return await self._ask(step)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case InThread():
                return await asyncio.to_thread(step.function)
            case Put():
                return await self._put(step)
            case Download():
                return await self._download(step)
            case Collect():
                async with aclosing(self._events(step.stream)) as events:
                    return await _collected(step.until, events)
            case _:
                return await asyncio.to_thread(self._target)

    async def _bearer(self) -> dict[str, str]:
        return _bearer(await asyncio.to_thread(self._token))  # a sign-in's token is fetched from the platform

    async def _ask(self, request: Request[T]) -> T:
        options = {"headers": await self._bearer(), **request.options()}
        return self._parsed(request, await self._send(request.method, self._url(request.path), **options))

    async def _send(self, method: str, url: str, **request: Any) -> Any:
        tries = _Tries(self, method, url)
        pause: float | None
        while True:
            try:
                answer = await self._http.request(method, url, **request)
            except Exception as error:
                pause = tries.after_error(error)
            else:
                pause = tries.after_answer(answer)
                if pause is None:
                    return answer
            await asyncio.sleep(pause)

    async def _put(self, put: Put) -> None:
        with put.open() as content:
            headers = _put_headers(put, content)
            sent = content if isinstance(content, bytes) else _pieces(content)
            answer = await self._send("PUT", put.url, content=sent, headers=headers, timeout=put.timeout)
        if not answer.is_success:
            raise failure(answer)

    async def _download(self, wanted: Download) -> bool:
        options = {"headers": await self._bearer(), "timeout": _DOWNLOAD_SECONDS}
        try:
            async with self._http.stream("GET", self._url(wanted.path), **options) as answer:
                if answer.status_code == 202:
                    return False
                if not answer.is_success:
                    await answer.aread()
                    raise failure(answer)
                with open(wanted.file, "wb") as file:  # noqa: ASYNC230 - the writes are in threads
                    async for piece in answer.aiter_bytes(_PIECE_BYTES):
                        await asyncio.to_thread(file.write, piece)
        except _httpx().TransportError as error:
            raise self._broke_off(error) from error
        return True

    async def _events(self, stream: EventStream) -> AsyncGenerator[Row]:
        """The events of a stream, until the server ends it."""
        options = self._stream_options(stream, await asyncio.to_thread(self._token))
        try:
            async with self._http.stream(stream.method, self._url(stream.path), **options) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise failure(answer, stream.refused)
                async for line in answer.aiter_lines():
                    if (event := _event(line)) is not None:
                        yield event
        except (_httpx().TransportError, ValueError) as error:
            raise self._lost(stream, error) from error


class _Tries:
    """Decides whether a request is sent again, and after which pause: GETs alone, within the budget."""

    def __init__(self, endpoint: _Endpoint, method: str, url: str) -> None:
        self._endpoint, self._method, self._url = endpoint, method, url
        self._start = time.monotonic()
        self._tried = 0

    def after_answer(self, answer: Any) -> float | None:
        """Seconds until the next try; None when this answer is the result."""
        if answer.status_code not in _WORTH_A_RETRY:
            return None
        return self._pause(retries.retry_after(answer.headers) or 0.0)

    def after_error(self, error: Exception) -> float:
        """Seconds until the next try; raises when there is none."""
        if isinstance(error, _httpx().InvalidURL):
            raise TrainerError(f"{self._url!r} is not an address: {error}. Check it.") from None
        if not isinstance(error, _httpx().TransportError):
            raise error
        if (pause := self._pause(0.0)) is None:
            raise self._endpoint._unreachable(error) from None  # it is quoted; its own trace is long and of no use
        return pause

    def _pause(self, asked: float) -> float | None:
        self._tried += 1
        pause = max(retries.pause(self._tried, 1.0, BUDGET_SECONDS), asked)
        late = time.monotonic() - self._start + pause > BUDGET_SECONDS
        return None if self._method != "GET" or self._tried >= TRIES or late else pause


def failure(answer: Any, kinds: Callable[[int], type[TrainerError]] | None = None) -> TrainerError:
    """An answer that is no success, as an exception with the server's message."""
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


def _event(line: str) -> Row | None:
    """The JSON object of a `data:` line; None for the other lines of server-sent events."""
    return json.loads(line[6:]) if line.startswith("data: ") else None


def _up_to(kinds: frozenset[str], events: Iterable[Row]) -> Iterator[Row]:
    for event in events:
        yield event
        if event["event"] in kinds:
            return


async def _collected(kinds: frozenset[str], events: AsyncIterable[Row]) -> list[Row]:
    found = []
    async for event in events:
        found.append(event)
        if event["event"] in kinds:
            break
    return found


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _put_headers(put: Put, content: bytes | IO[bytes]) -> dict[str, str]:
    headers = {"Content-Type": put.mime_type, "x-ms-blob-type": "BlockBlob"}
    if not isinstance(content, bytes):
        headers["Content-Length"] = str(os.fstat(content.fileno()).st_size)
    return headers


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
        yield piece


def _httpx() -> Any:
    try:
        import httpx2
    except ImportError:
        raise UsageError("The platform's client needs an extra: pip install 'benchmax[platform]'.") from None
    return httpx2
