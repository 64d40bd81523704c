"""What a client asks of the platform, described once for the blocking and the async clients.

A `Request` is one exchange: method, path, body, and how the answer is read. What takes several (pages, polls, uploads,
streams) is a *procedure*: an async function whose first parameter is the `Exchange` that carries requests out.

    async def list_all(exchange: Exchange) -> list[Row]:
        first = await exchange.ask(page(1))
        await exchange.pause(0.5)
        …

`methods` turns both into methods of clients.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

from benchmax.platform.sdk.exceptions import TrainerError

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One request to the platform, and how its answer's JSON is read."""

    method: str
    path: str
    parse: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    """The query; what is None is left out."""
    json: Any = None
    content: bytes | None = None

    def options(self) -> dict[str, Any]:
        """The request as httpx takes it."""
        sent = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in self.params.items()
            if value is not None
        }
        body = {"json": self.json, "content": self.content}
        return {"params": sent or None, **{name: value for name, value in body.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class EventStream:
    """A request that is answered by server-sent events, each a JSON object."""

    method: str
    path: str
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds without a byte; None: the client's."""
    broken: type[TrainerError] = TrainerError
    """Raised when the connection is lost, or an event is not JSON."""
    refused: Callable[[int], type[TrainerError]] | None = None
    """The exception for an HTTP status that is no success."""


class Blocking:
    """A client or handle whose methods block."""


class Awaiting:
    """One whose methods are coroutines."""


def run_blocking(waiting: Coroutine[Any, Any, T]) -> T:
    """The result of a procedure whose exchange blocks."""
    try:
        waiting.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    waiting.close()
    raise RuntimeError("A blocking client's procedure has waited for an event loop.")


def iterate_blocking(items: AsyncGenerator[T]) -> Generator[T]:
    """What an iterating procedure yields, when its exchange blocks."""
    try:
        with suppress(StopAsyncIteration):
            while True:
                yield run_blocking(items.__anext__())
    finally:
        run_blocking(items.aclose())


# Reading answers

FIT = "Check that client and server fit together."


def as_is(found: Any) -> Any:
    return found


def as_object(found: Any) -> Row:
    if not isinstance(found, dict):
        raise TrainerError(f"The platform's answer is not an object. {FIT}")
    return found


def rows_in(*envelopes: str) -> Callable[[Any], list[Row]]:
    """Reads a list, bare or inside an object under one of these names."""

    def read(found: Any) -> list[Row]:
        for name in envelopes:
            if isinstance(found, dict) and isinstance(found.get(name), list):
                found = found[name]
        if not isinstance(found, list):
            raise TrainerError(f"The platform's answer is not a list. {FIT}")
        return found

    return read


# Writing requests


def get(path: str, parse: Callable[[Any], T], /, **params: Any) -> Request[T]:
    return Request("GET", path, parse, params)


def post(path: str, body: Any = None) -> Request[Row]:
    return Request("POST", path, as_object, json=body)


def post_for(name: str, path: str, body: Any) -> Request[str]:
    """A POST that returns one text of its answer, such as the id of what was created."""
    return Request("POST", path, lambda found: str(as_object(found)[name]), json=body)


def delete(path: str, /, **params: Any) -> Request[Row]:
    return Request("DELETE", path, as_object, params)


def run_path(run_id: str, part: str = "") -> str:
    path = f"/v1/train/runs/{part_of_path(run_id)}"
    return f"{path}/{part}" if part else path


def part_of_path(name: str) -> str:
    """A name as one part of a path, whatever is in it."""
    return quote(name, safe="")
