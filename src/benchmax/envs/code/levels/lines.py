"""One line: an operation on a number, a text or a list, with a constant or two."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.inputs import DrawArgs
from benchmax.envs.code.levels.operations import Constants, Op
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

NUMBERS = (
    Op("{v} plus {c}", "{v} + {c}", lambda v, k: v + k.c),
    Op("{v} minus {c}", "{v} - {c}", lambda v, k: v - k.c),
    Op("{c} minus {v}", "{c} - {v}", lambda v, k: k.c - v),
    Op("{v} times {c}", "{v} * {c}", lambda v, k: v * k.c),
    Op("{v} times {c} plus {d}", "{v} * {c} + {d}", lambda v, k: v * k.c + k.d),
    Op("{v} times {c} minus {d}", "{v} * {c} - {d}", lambda v, k: v * k.c - k.d),
    Op("{v} squared plus {c}", "{v} ** 2 + {c}", lambda v, k: v * v + k.c),
    Op("the remainder of {v} divided by {c}", "{v} % {c}", lambda v, k: v - k.c * (v // k.c)),
    Op("{v} divided by {c}, rounded down", "{v} // {c}", lambda v, k: (v - v % k.c) // k.c),
    Op("the larger of {v} and {c}", "max({v}, {c})", lambda v, k: v if v > k.c else k.c),
    Op("the smaller of {v} and {c}", "min({v}, {c})", lambda v, k: v if v < k.c else k.c),
    Op("the distance between {v} and {c}", "abs({v} - {c})", lambda v, k: max(v - k.c, k.c - v)),
    Op("whether {v} is greater than {c}", "{v} > {c}", lambda v, k: not v <= k.c),
    Op("whether {v} is at most {c}", "{v} <= {c}", lambda v, k: not v > k.c),
    Op("whether {v} is divisible by {c}", "{v} % {c} == 0", lambda v, k: v // k.c * k.c == v),
    Op("whether {v} is between {c} and {high}, both included", "{c} <= {v} <= {high}",
       lambda v, k: v in range(k.c, k.high + 1)),
)  # fmt: skip
TEXTS = (
    Op("the first {c} characters of {v}", "{v}[:{c}]", lambda v, k: v[0 : k.c], counts=True),
    Op("the last {c} characters of {v}", "{v}[-{c}:]", lambda v, k: v[max(0, len(v) - k.c) :], counts=True),
    Op("{v} without its first {c} characters", "{v}[{c}:]", lambda v, k: v.removeprefix(v[: k.c]), counts=True),
    Op("{v} repeated {c} times", "{v} * {c}", lambda v, k: "".join([v] * k.c), counts=True),
    Op("{v} backwards", "{v}[::-1]", lambda v, k: "".join(reversed(v))),
    Op("{v} in upper case", "{v}.upper()", lambda v, k: "".join(map(str.upper, v))),
    Op("the length of {v} plus {c}", "len({v}) + {c}", lambda v, k: len(v) + k.c),
    Op("the length of {v} times {c}", "len({v}) * {c}", lambda v, k: len(v) * k.c),
    Op("how often {letter!r} occurs in {v}", "{v}.count({letter!r})", lambda v, k: sum(x == k.letter for x in v)),
    Op("whether {v} contains {letter!r}", "{letter!r} in {v}", lambda v, k: v.find(k.letter) >= 0),
    Op("{v} followed by {word!r}", "{v} + {word!r}", lambda v, k: f"{v}{k.word}"),
    Op("{word!r} followed by {v}", "{word!r} + {v}", lambda v, k: f"{k.word}{v}"),
    Op("{v} with every {letter!r} replaced by {other!r}", "{v}.replace({letter!r}, {other!r})",
       lambda v, k: k.other.join(v.split(k.letter))),
    Op("{v} without every {letter!r}", "{v}.replace({letter!r}, '')",
       lambda v, k: "".join(x for x in v if x != k.letter)),
    Op("whether {v} is longer than {c}", "len({v}) > {c}", lambda v, k: not len(v) <= k.c, counts=True),
)  # fmt: skip
LISTS = (
    Op("the sum of {v} plus {c}", "sum({v}) + {c}", lambda v, k: sum(v, k.c)),
    Op("the sum of {v} times {c}", "sum({v}) * {c}", lambda v, k: sum(x * k.c for x in v)),
    Op("the first {c} items of {v}", "{v}[:{c}]", lambda v, k: [x for n, x in enumerate(v) if n < k.c], counts=True),
    Op("{v} without its first {c} items", "{v}[{c}:]", lambda v, k: list(v[len(v[: k.c]) :]), counts=True),
    Op("each item of {v} plus {c}", "[x + {c} for x in {v}]", lambda v, k: [k.c + x for x in v]),
    Op("each item of {v} times {c}", "[x * {c} for x in {v}]", lambda v, k: [k.c * x for x in v]),
    Op("the items of {v} greater than {c}", "[x for x in {v} if x > {c}]", lambda v, k: _above(v, k.c)),
    Op("the items of {v} less than {c}", "[x for x in {v} if x < {c}]", lambda v, k: [x for x in v if k.c - x > 0]),
    Op("the items of {v} divisible by {c}", "[x for x in {v} if x % {c} == 0]",
       lambda v, k: [x for x in v if not x % k.c]),
    Op("how many items of {v} are greater than {c}", "sum(x > {c} for x in {v})", lambda v, k: len(_above(v, k.c))),
    Op("the sum of the items of {v} greater than {c}", "sum(x for x in {v} if x > {c})",
       lambda v, k: sum(_above(v, k.c))),
    Op("whether {c} is in {v}", "{c} in {v}", lambda v, k: v.count(k.c) > 0),
    Op("{v} with {c} added at the end", "{v} + [{c}]", lambda v, k: [*v, k.c]),
    Op("{v} with {c} added at the start", "[{c}] + {v}", lambda v, k: [k.c, *v]),
    Op("the largest item of {v} plus {c}", "max({v}) + {c}", lambda v, k: sorted(v)[-1] + k.c),
    Op("the smallest item of {v} minus {c}", "min({v}) - {c}", lambda v, k: sorted(v)[0] - k.c),
    Op("{v} in descending order", "sorted({v}, reverse=True)", lambda v, k: sorted(v)[::-1]),
    Op("{v} backwards", "{v}[::-1]", lambda v, k: list(reversed(v))),
)  # fmt: skip


def _above(items: Sequence[int], least: int) -> list[int]:
    return [x for x in items if x - least > 0]


def _maker(op: Op, params: Sequence[str], names: Sequence[str], args: DrawArgs) -> MakeTask:
    def make(draw: random.Random) -> TaskPlan:
        param, constant = draw.choice(params), draw.randint(2, 6 if op.counts else 40)
        step = op.step(param, Constants.of(constant, draw.randint(2, 20)))
        signature = f"{draw.choice(names)}({param})"
        return TaskPlan(signature, step.says, f"return {step.code}", step.right, args, shown=1)

    return make


_KINDS: tuple[tuple[tuple[Op, ...], Sequence[str], Sequence[str], DrawArgs], ...] = (
    (NUMBERS, ("x", "n", "a"), ("f", "calc", "change"), lambda draw: [draw.randint(-40, 80)]),
    (TEXTS, ("s", "text", "word"), ("f", "edit", "change"), lambda draw: [inputs.word(draw)]),
    (LISTS, ("xs", "items", "values"), ("f", "pick", "change"), lambda draw: [inputs.numbers(draw, -10, 45)]),
)
MAKERS = [_maker(op, params, names, args) for ops, params, names, args in _KINDS for op in ops]
"""One for each operation."""
