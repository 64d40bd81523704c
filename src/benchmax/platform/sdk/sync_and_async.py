"""Methods of clients, each made once for the blocking client and the async one.

A client's table names its methods; the class that holds the table decides what they are:

    class Table:
        get_run = request(runs.get_run)            # from a function that returns a Request
        list_runs = procedure(runs.list_runs)      # from a procedure
        stream_run = iterator(runs.stream_run)     # from a procedure that yields

    class Client(Table, Connection): ...           # get_run(…) -> dict
    class AsyncClient(Table, AsyncConnection): ... # await get_run(…) -> dict

    class Handle:
        @procedure
        async def wait(self): await self._exchange.ask(…)

    class Run(Handle, Blocking): ...               # wait() -> …
    class AsyncRun(Handle, Awaiting): ...          # await wait() -> …

Their parameters and documentation are those of the functions they are made from, without the exchange. In a blocking
client a procedure never waits: its exchange blocks instead, so it runs to its end without an event loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from operator import attrgetter
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from benchmax.platform.sdk.calls import Awaiting, Blocking, Request, iterate_blocking, run_blocking
from benchmax.platform.sdk.transport import Exchange

P = ParamSpec("P")
T = TypeVar("T")
Plain = TypeVar("Plain")
Awaited = TypeVar("Awaited")


class Method(Generic[P, Plain, Awaited]):
    """A method that returns `Plain` in a blocking client, and `Awaited` in an async one."""

    def __init__(self, blocking: Callable[..., Any], awaited: Callable[..., Any]) -> None:
        self._blocking = blocking
        self._awaited = awaited

    @overload
    def __get__(self, client: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], Plain]: ...
    @overload
    def __get__(self, client: None, owner: type[Awaiting]) -> Callable[Concatenate[Any, P], Awaited]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Plain]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Awaited]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        call = self._awaited if issubclass(owner, Awaiting) else self._blocking
        return call.__get__(client, owner)


Calling: TypeAlias = Method[P, T, Coroutine[Any, Any, T]]
Iterating: TypeAlias = Method[P, Generator[T], AsyncGenerator[T]]


def request(build: Callable[P, Request[T]]) -> Calling[P, T]:
    """A method that sends a request."""

    @functools.wraps(build)
    async def ask(exchange: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await exchange.ask(build(*args, **kwargs))

    return procedure(ask)


def procedure(run: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Calling[P, T]:
    """A method that carries out a procedure, of an exchange or of the object itself (`self`)."""
    first = _first(run)

    def blocking(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(run(first(self), *args, **kwargs))

    async def awaited(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(first(self), *args, **kwargs)

    return Method(_named(blocking, run), _named(awaited, run))


def iterator(run: Callable[Concatenate[Any, P], AsyncGenerator[T]]) -> Iterating[P, T]:
    """A method that yields what a procedure yields."""
    first = _first(run)

    def blocking(self: Any, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        yield from iterate_blocking(run(first(self), *args, **kwargs))

    async def awaited(self: Any, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        async with aclosing(run(first(self), *args, **kwargs)) as items:
            async for item in items:
                yield item

    return Method(_named(blocking, run), _named(awaited, run))


def _first(run: Callable[..., Any]) -> Callable[[Any], Any]:
    """What a procedure's first parameter is, by the object whose method it becomes."""
    itself = next(iter(inspect.signature(run).parameters), "") == "self"
    return (lambda owner: owner) if itself else attrgetter("_exchange")


def _named(call: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under the name, documentation and parameters of `run`, with `self` in place of the exchange."""
    functools.update_wrapper(call, run)
    signature = inspect.signature(run)
    given = [each for each in signature.parameters.values() if each.annotation != "Exchange" and each.name != "self"]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    returns = signature.return_annotation
    if returns.startswith("Request["):
        returns = returns[len("Request[") : -1]
    call.__signature__ = signature.replace(parameters=[own, *given], return_annotation=returns)  # type: ignore[attr-defined]
    return call
