"""What environments that make their own rows share: rows that differ, levels and their tools, examples and solutions.

Rows are drawn from a generator that a level and a seed determine: the same seed makes the same rows, on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from benchmax.envs.types import Messages, ToolCall
from benchmax.errors import EnvDefinitionError

Maker = TypeVar("Maker")
Made = TypeVar("Made")
Steps: TypeAlias = Generator[tuple[str, dict[str, Any]], str, Any]
"""Calls of tools, each of which its result comes back to; the value it returns is what they were for."""


def different(
    makers: Iterable[Maker],
    draw: Callable[[Maker], Made | None],
    key: Callable[[Made], Hashable],
    wanted: int,
    tries: int = 100,
) -> list[Made]:
    """As many as are wanted, drawn of each maker in turn, no two with the same key.

    A maker that brings nothing new in so many tries is asked no more: there are fewer where all have no more.
    """
    found: dict[Hashable, Made] = {}
    left = list(makers)
    while left and len(found) < wanted:
        for maker in list(left):
            drawn = (draw(maker) for _ in range(tries))
            new = next((each for each in drawn if each is not None and key(each) not in found), None)
            if new is None:
                left.remove(maker)
            else:
                found[key(new)] = new
    return list(found.values())[:wanted]


def only(values: Mapping[str, float], best: Callable[..., float] = max) -> str | None:
    """The one key with the largest (or smallest) value; None when there are several or none."""
    top = best(values.values(), default=None)
    found = [name for name, value in values.items() if value == top]
    return found[0] if len(found) == 1 else None


# Levels


class Level(Protocol):
    """A level of difficulty, and the tools that an environment of it lists."""

    @property
    def tools(self) -> Sequence[str]: ...


def tools_of(levels: Mapping[str, Level], level: str) -> Sequence[str]:
    """The tools of a level; EnvDefinitionError when there is none of the name."""
    if level not in levels:
        raise EnvDefinitionError(f"There is no level {level!r}. The levels are: {', '.join(levels)}.")
    return levels[level].tools


def check_level(levels: Mapping[str, Level], level: str, of_row: str | None) -> None:
    """Raises EnvDefinitionError when a row's level needs tools that the environment's does not list."""
    if of_row is not None and not set(tools_of(levels, of_row)) <= set(tools_of(levels, level)):
        raise EnvDefinitionError(
            f"These rows are of the level {of_row!r}, whose tools the level {level!r} does not list. "
            f"Add --env-arg level={of_row}."
        )


# Examples and solutions


def worked(question: str, tool: str, arguments: Mapping[str, Any], result: str, answer: str) -> Messages:
    """A worked example to show before a question: a question, a call, its result, the answer."""
    call = ToolCall(tool, json.dumps(arguments), "call_shown")
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call.to_dict()]},
        {"role": "tool", "tool_call_id": "call_shown", "name": tool, "content": result},
        {"role": "assistant", "content": answer},
    ]


def answered(steps: Steps) -> Generator[Any, str, None]:
    """The steps of a solution, then what they came to, in `<answer>` tags."""
    answer = yield from steps
    yield f"<answer>{answer}</answer>"
