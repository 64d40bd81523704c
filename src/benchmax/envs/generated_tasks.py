"""What environments that make their own rows share: rows that differ, levels and their tools, examples and solutions.

Rows are drawn from a generator that a level and a seed determine: the same seed makes the same rows, on every machine.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, TypeAlias, TypeVar

from benchmax.envs.example_id import make_example
from benchmax.envs.required_columns import require_columns
from benchmax.envs.types import Example, Messages, ToolCall
from benchmax.errors import EnvDefinitionError, UsageError

WHOLE_ANSWER = re.compile(r"<answer>\s*(-?\d{1,18})\s*</answer>")
"""A whole number in `<answer>` tags."""
Maker = TypeVar("Maker")
Made = TypeVar("Made")
Steps: TypeAlias = Generator[tuple[str, dict[str, Any]], str, Any]
"""Yields tool calls, is sent the result of each, and returns the answer that they lead to."""


def draw_different(
    makers: Iterable[Maker],
    draw: Callable[[Maker], Made | None],
    key: Callable[[Made], Hashable],
    wanted: int,
    tries: int = 100,
) -> list[Made]:
    """Draws from the makers in turn until there are as many as wanted, no two with the same key.

    A maker that brings nothing new in `tries` draws is dropped; there are fewer when no maker is left.
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


def single_best(values: Mapping[str, float], best: Callable[..., float] = max) -> str | None:
    """The one key with the largest (or smallest) value; None when there are several or none."""
    top = best(values.values(), default=None)
    found = [name for name, value in values.items() if value == top]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: how one is drawn from what is known, and how it is solved with the tools."""

    name: str
    draw: Callable[..., Any]
    """A question; None when what was drawn has no single answer."""
    solve: Callable[[Mapping[str, Any]], Steps]
    """The calls that lead from the facts in a question to the answer, which it returns as text."""


# Tools

TEXT: dict[str, Any] = {"type": "string"}


def arguments_schema(optional: Mapping[str, Any] | None = None, **required: Any) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, from the schema of each."""
    schema: dict[str, Any] = {"type": "object", "properties": {**required, **(optional or {})}}
    return {**schema, "required": list(required)} if required else schema


# Levels


class Level(Protocol):
    """A level of difficulty, and the tools that an environment of it lists."""

    @property
    def tools(self) -> Sequence[str]: ...


def tools_of_level(levels: Mapping[str, Level], level: str) -> Sequence[str]:
    """The tools of a level; EnvDefinitionError for a level that does not exist."""
    if level not in levels:
        raise EnvDefinitionError(f"There is no level {level!r}. The levels are: {', '.join(levels)}.")
    return levels[level].tools


def check_level(levels: Mapping[str, Level], level: str, of_row: str | None) -> None:
    """Raises EnvDefinitionError when a row's level needs tools that the environment's does not list."""
    if of_row is not None and not set(tools_of_level(levels, of_row)) <= set(tools_of_level(levels, level)):
        raise EnvDefinitionError(
            f"These rows are of the level {of_row!r}, whose tools the level {level!r} does not list. "
            f"Add --env-arg level={of_row}."
        )


# Examples and solutions


def row_example(
    row: Mapping[str, Any], question: str, task: dict[str, Any], shown: Messages, arguments: Sequence[str] = ()
) -> Example:
    """The example of a row: worked examples, then the question. `arguments` are columns that `init_rollout` takes."""
    given = {name: row[name] for name in arguments if row.get(name) not in (None, "")}
    return make_example([*shown, {"role": "user", "content": question}], task, given or None)


def question_example(row: Mapping[str, Any], shown: Messages) -> Example:
    """The example of a row `{"question": "3 + 4?", "ground_truth": "7"}`, with worked examples before the question."""
    require_columns(row, "question", "ground_truth")
    truth = row["ground_truth"]
    text = str(int(truth) if isinstance(truth, float) and truth.is_integer() else truth)
    try:
        int(text)
    except ValueError:
        raise UsageError(f"A row's ground_truth is {truth!r}, not a whole number. Write it in digits: 7.") from None
    return row_example(row, row["question"], {"ground_truth": text}, shown)


def pair_rows(
    sign: str, compute: Callable[[int, int], int], numbers: range, shown: Sequence[tuple[int, int]], seed: int
) -> list[dict[str, str]]:
    """The question `3 + 4?` for every pair of numbers but those that worked examples show, shuffled."""
    pairs = [pair for pair in product(numbers, numbers) if pair not in shown]
    random.Random(seed).shuffle(pairs)
    return [{"question": f"{a} {sign} {b}?", "ground_truth": str(compute(a, b))} for a, b in pairs]


def worked_example(question: str, tool: str, arguments: Mapping[str, Any], result: str, answer: str) -> Messages:
    """A worked example to show before a question: a question, a call, its result, the answer."""
    call = ToolCall(tool, json.dumps(arguments), "call_shown")
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call.to_dict()]},
        {"role": "tool", "tool_call_id": "call_shown", "name": tool, "content": result},
        {"role": "assistant", "content": answer},
    ]


def with_answer(steps: Steps) -> Generator[Any, str, None]:
    """The steps of a solution, then the answer that they lead to, in `<answer>` tags."""
    answer = yield from steps
    yield f"<answer>{answer}</answer>"
