"""Methods of clients, each made once for the blocking client and the async one.

A client's table names its methods; the class that holds the table decides what they are:

    class Table:
        get_run = request(runs.get_run)            # from a function that returns a Request
        list_runs = procedure(runs.list_runs)      # from a procedure
        stream_run = iterator(runs.stream_run)     # from a procedure that yields

    class Client(Table, Connection): ...           # get_run(…) -> dict
    class AsyncClient(Table, AsyncConnection): ... # await get_run(…) -> dict

Their parameters and documentation are those of the functions they are made from, without the exchange. In a blocking
client a procedure never waits: its exchange blocks instead, so it runs to its end without an event loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from benchmax.platform.sdk.calls import Request, iterate_blocking, run_blocking
from benchmax.platform.sdk.transport import AsyncConnection, Connection, Exchange

P = ParamSpec("P")
T = TypeVar("T")
Blocking = TypeVar("Blocking")
Awaited = TypeVar("Awaited")


class Method(Generic[P, Blocking, Awaited]):
    """A method that returns `Blocking` in a blocking client, and `Awaited` in an async one."""

    def __init__(self, blocking: Callable[..., Any], awaited: Callable[..., Any]) -> None:
        self._blocking = blocking
        self._awaited = awaited

    @overload
    def __get__(self, client: None, owner: type[Connection]) -> Callable[Concatenate[Any, P], Blocking]: ...
    @overload
    def __get__(self, client: None, owner: type[AsyncConnection]) -> Callable[Concatenate[Any, P], Awaited]: ...
    @overload
    def __get__(self, client: Connection, owner: type) -> Callable[P, Blocking]: ...
    @overload
    def __get__(self, client: AsyncConnection, owner: type) -> Callable[P, Awaited]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        call = self._awaited if issubclass(owner, AsyncConnection) else self._blocking
        return call.__get__(client, owner)


Calling: TypeAlias = Method[P, T, Coroutine[Any, Any, T]]
Iterating: TypeAlias = Method[P, Generator[T], AsyncGenerator[T]]


def request(build: Callable[P, Request[T]]) -> Calling[P, T]:
    """A method that sends a request."""

    @functools.wraps(build)
    async def ask(exchange: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await exchange.ask(build(*args, **kwargs))

    return procedure(ask)


def procedure(run: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]]) -> Calling[P, T]:
    """A method that carries out a procedure."""

    def blocking(self: Connection, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(run(self._exchange, *args, **kwargs))

    async def awaited(self: AsyncConnection, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(self._exchange, *args, **kwargs)

    return Method(_named(blocking, run), _named(awaited, run))


def iterator(run: Callable[Concatenate[Exchange, P], AsyncGenerator[T]]) -> Iterating[P, T]:
    """A method that yields what a procedure yields."""

    def blocking(self: Connection, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        yield from iterate_blocking(run(self._exchange, *args, **kwargs))

    async def awaited(self: AsyncConnection, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        async with aclosing(run(self._exchange, *args, **kwargs)) as items:
            async for item in items:
                yield item

    return Method(_named(blocking, run), _named(awaited, run))


def _named(call: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under the name, documentation and parameters of `run`, with `self` in place of the exchange."""
    functools.update_wrapper(call, run)
    signature = inspect.signature(run)
    given = [each for each in signature.parameters.values() if each.annotation != "Exchange"]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    returns = signature.return_annotation
    if returns.startswith("Request["):
        returns = returns[len("Request[") : -1]
    call.__signature__ = signature.replace(parameters=[own, *given], return_annotation=returns)  # type: ignore[attr-defined]
    return call
