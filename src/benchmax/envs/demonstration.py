"""A scripted solution, turn by turn: what `BaseEnv.demonstrate` returns, in any of the shapes people write it in.

    def demonstrate(self, example):
        code = yield "look_up", {"name": example["task"]["name"]}      # a call; its result comes back
        yield f"<answer>{code}</answer>"                                # a text ends it

A list of turns works as well where no turn depends on a result. A turn is a text, a call (`ToolCall`, or a tool's name
and its arguments), a list of calls made at once, or a whole message.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from benchmax.envs.types import ChatMessage, Example, ToolCall, nest_tool_calls
from benchmax.errors import EnvDefinitionError

Turn: TypeAlias = "str | tuple[ToolCall, ...] | ChatMessage"
Demonstrate: TypeAlias = Callable[[Example], Any]

SHAPE = 'yield a text, or a call such as ("search", {"query": "…"})'
MOST_TURNS = 64


def read_turn(raw: Any) -> Turn:
    """A turn as its author wrote it; raises EnvDefinitionError for anything else."""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, Mapping) and ("role" in raw or "content" in raw or "tool_calls" in raw):
        message: Any = {**raw, "role": "assistant"}
        return nest_tool_calls(message)
    if (call := _call(raw)) is not None:
        return (call,)
    if isinstance(raw, Sequence) and raw:
        calls = [_call(each) for each in raw]
        if all(call is not None for call in calls):
            return tuple(call for call in calls if call is not None)
    raise EnvDefinitionError(f"demonstrate returned {type(raw).__name__} as a turn; {SHAPE}.")


def _call(raw: Any) -> ToolCall | None:
    match raw:
        case ToolCall():
            arguments: Any = raw.arguments
            return raw if isinstance(arguments, str) else ToolCall(raw.name, json.dumps(arguments), raw.id)
        case (str(name), Mapping() as given):
            return ToolCall(name, json.dumps(dict(given), ensure_ascii=False))
        case Mapping() if "name" in raw or "function" in raw:
            return ToolCall.from_dict(raw)
    return None


class Script:
    """One solution as it is played; `turn` takes the results of the calls of the previous turn."""

    def __init__(self, source: Any) -> None:
        self._source = source if inspect.isgenerator(source) or inspect.isasyncgen(source) else _listed(source)
        self._begun = False

    @classmethod
    async def of(cls, demonstrate: Demonstrate, example: Example) -> Script | None:
        """The script of an example; None when the environment has none for it."""
        source = demonstrate(example)
        if inspect.isawaitable(source):
            source = await source
        return None if source is None else cls(source)

    async def turn(self, results: Sequence[str] = ()) -> Turn | None:
        """The next turn; None after the last."""
        raw = await self._next(results)
        return None if raw is None else read_turn(raw)

    async def _next(self, results: Sequence[str]) -> Any:
        source = self._source
        back: Any = None if not self._begun or not results else results[0] if len(results) == 1 else list(results)
        self._begun = True
        try:
            return await source.asend(back) if inspect.isasyncgen(source) else source.send(back)
        except (StopIteration, StopAsyncIteration):
            return None


def _listed(source: Any) -> Generator[Any, Any, None]:
    """Turns that are returned all at once: a text is one answer, and so is a single call."""
    if isinstance(source, str | Mapping | ToolCall) or _call(source) is not None:
        yield source
    elif isinstance(source, Iterable):
        for turn in list(source):  # noqa: UP028 - results are sent, which a list does not take
            yield turn
    else:
        raise EnvDefinitionError(f"demonstrate returned {type(source).__name__}; {SHAPE}, or return a list of those.")


async def turn_after(demonstrate: Demonstrate, example: Example, results: Sequence[Sequence[str]]) -> Turn | None:
    """The turn that follows these results, computed from the first turn on: for callers in another process."""
    script = await Script.of(demonstrate, example)
    if script is None:
        return None
    turn = await script.turn()
    for said in results:
        turn = await script.turn(said)
    return turn


def turn_to_json(turn: Turn | None) -> Any:
    """A turn as JSON, which `read_turn` reads."""
    return [{"name": call.name, "arguments": call.arguments} for call in turn] if isinstance(turn, tuple) else turn


AskTurn: TypeAlias = Callable[[Example, list[list[str]]], Awaitable[Any]]


async def remote_script(ask: AskTurn, example: Example) -> AsyncGenerator[Any, Any]:
    """The script of an environment in another process, as an async generator that requests one turn at a time."""
    results: list[list[str]] = []
    while len(results) < MOST_TURNS:
        raw = await ask(example, results)
        if raw is None:
            return
        said = yield raw
        results.append([said] if isinstance(said, str) else list(said or ()))
