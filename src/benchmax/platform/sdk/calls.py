"""What a client asks of the platform, described once and carried out by both the blocking and the async connection.

A `Request` is one exchange: method, path, body, and how the answer is read. A *procedure* is a generator that yields
requests and other steps and receives their results, for what takes several: pages, polls, uploads.

    def list_all() -> Procedure[list[Row]]:
        first = yield from ask(page(1))     # a Request; its parsed answer comes back
        yield Pause(0.5)
        …

`method` and `async_method` turn a function that returns either into a method of a client, with the same signature.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload
from urllib.parse import quote

from benchmax.platform.sdk.exceptions import TrainerError

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import AsyncConnection, Connection

P = ParamSpec("P")
T = TypeVar("T")
Result = TypeVar("Result", covariant=True)
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
        sent = {name: _query(value) for name, value in self.params.items() if value is not None}
        body = {"json": self.json, "content": self.content}
        return {"params": sent or None, **{name: value for name, value in body.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class InThread:
    """Call a function that computes or uses the disk; in async code, in a thread."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Put:
    """Send a file to an address that the platform returned; the address is the credential."""

    url: str
    mime_type: str
    open: Callable[[], AbstractContextManager[bytes | IO[bytes]]]
    timeout: float


@dataclass(frozen=True, slots=True)
class Download:
    """Write an answer into a file; the result is False when the platform is still preparing it (202)."""

    path: str
    file: Path


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
    """Raised when the connection is lost, or what comes is not JSON."""
    refused: Callable[[int], type[TrainerError]] | None = None
    """The exception for an HTTP status that is no success."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Read an event stream up to the first event of a kind in `until`; the result is the list of events."""

    stream: EventStream
    until: frozenset[str]


@dataclass(frozen=True, slots=True)
class Target:
    """The platform's address and the key it is sent, None if there is none: `(base_url, key)`."""


Step: TypeAlias = Request[Any] | Pause | InThread | Put | Download | Collect | Target
Procedure: TypeAlias = Generator[Step, Any, T]
Call: TypeAlias = Request[T] | Procedure[T]


def ask(request: Request[T]) -> Procedure[T]:
    """A request as a step of a procedure, with its result's type."""
    answer: T = yield request
    return answer


def in_thread(function: Callable[[], T]) -> Procedure[T]:
    """The same for a function."""
    result: T = yield InThread(function)
    return result


class Method(Protocol[P, Result]):
    """A method with the parameters of the function it was made from."""

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Result]: ...
    @overload
    def __get__(self, client: object, owner: type) -> Callable[P, Result]: ...


def method(build: Callable[P, Call[T]]) -> Method[P, T]:
    """A method of a blocking client that carries out what `build` describes."""

    def call(self: Connection, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(build(*args, **kwargs))

    return cast("Method[P, T]", _named(call, build))


def async_method(build: Callable[P, Call[T]]) -> Method[P, Coroutine[Any, Any, T]]:
    """The same for an async client."""

    async def call(self: AsyncConnection, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(build(*args, **kwargs))

    return cast("Method[P, Coroutine[Any, Any, T]]", _named(call, build))


def _named(call: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under the name, documentation and signature of `build`, with `self` before its parameters."""
    functools.update_wrapper(call, build)
    signature = inspect.signature(build)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    returns = signature.return_annotation.partition("[")[2].removesuffix("]")  # of Request[…] or Procedure[…]
    parameters = [own, *signature.parameters.values()]
    call.__annotations__ = {**build.__annotations__, "return": returns}
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return call


# Reading answers


def as_is(found: Any) -> Any:
    return found


def as_object(found: Any) -> Row:
    if not isinstance(found, dict):
        raise TrainerError("The platform's answer is not an object. Check that client and server fit together.")
    return found


def rows_in(*envelopes: str) -> Callable[[Any], list[Row]]:
    """Reads a list, bare or inside an object under one of these names."""

    def read(found: Any) -> list[Row]:
        for name in envelopes:
            if isinstance(found, dict) and isinstance(found.get(name), list):
                found = found[name]
        if not isinstance(found, list):
            raise TrainerError("The platform's answer is not a list. Check that client and server fit together.")
        return found

    return read


# Writing requests


def get(path: str, parse: Callable[[Any], T], /, **params: Any) -> Request[T]:
    return Request("GET", path, parse, params)


def post(path: str, body: Any = None) -> Request[Row]:
    return Request("POST", path, as_object, json=body)


def post_for(name: str, path: str, body: Any) -> Request[str]:
    """A POST of whose answer only the text under `name` matters, such as the id of what was made."""
    return Request("POST", path, lambda found: str(as_object(found)[name]), json=body)


def delete(path: str, /, **params: Any) -> Request[Row]:
    return Request("DELETE", path, as_object, params)


def run_path(run_id: str, part: str = "") -> str:
    path = f"/v1/train/runs/{part_of_path(run_id)}"
    return f"{path}/{part}" if part else path


def part_of_path(name: str) -> str:
    """A name as one part of a path, whatever is in it."""
    return quote(name, safe="")


def _query(value: Any) -> Any:
    return ("true" if value else "false") if isinstance(value, bool) else value
