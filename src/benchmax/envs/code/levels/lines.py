"""One line: an operation on a number, a text or a list, with a constant or two."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

DrawArgs: TypeAlias = Callable[[random.Random], Sequence[Any]]


class Op(NamedTuple):
    """An operation: in words, in Python, and what it computes."""

    says: str
    code: str
    right: Callable[..., Any]


MakeOp: TypeAlias = Callable[[str, int, int], Op]
"""From the name of the argument and two constants."""

NUMBERS: tuple[MakeOp, ...] = (
    lambda x, c, d: Op(f"{x} plus {c}", f"{x} + {c}", lambda v: v + c),
    lambda x, c, d: Op(f"{x} minus {c}", f"{x} - {c}", lambda v: v - c),
    lambda x, c, d: Op(f"{c} minus {x}", f"{c} - {x}", lambda v: c - v),
    lambda x, c, d: Op(f"{x} times {c}", f"{x} * {c}", lambda v: v * c),
    lambda x, c, d: Op(f"{x} times {c} plus {d}", f"{x} * {c} + {d}", lambda v: v * c + d),
    lambda x, c, d: Op(f"{x} times {c} minus {d}", f"{x} * {c} - {d}", lambda v: v * c - d),
    lambda x, c, d: Op(f"{x} squared plus {c}", f"{x} ** 2 + {c}", lambda v: v * v + c),
    lambda x, c, d: Op(f"the remainder of {x} divided by {c}", f"{x} % {c}", lambda v: v - c * (v // c)),
    lambda x, c, d: Op(f"{x} divided by {c}, rounded down", f"{x} // {c}", lambda v: (v - v % c) // c),
    lambda x, c, d: Op(f"the larger of {x} and {c}", f"max({x}, {c})", lambda v: v if v > c else c),
    lambda x, c, d: Op(f"the smaller of {x} and {c}", f"min({x}, {c})", lambda v: v if v < c else c),
    lambda x, c, d: Op(f"the distance between {x} and {c}", f"abs({x} - {c})", lambda v: max(v - c, c - v)),
    lambda x, c, d: Op(f"whether {x} is greater than {c}", f"{x} > {c}", lambda v: not v <= c),
    lambda x, c, d: Op(f"whether {x} is at most {c}", f"{x} <= {c}", lambda v: not v > c),
    lambda x, c, d: Op(f"whether {x} is divisible by {c}", f"{x} % {c} == 0", lambda v: v // c * c == v),
    lambda x, c, d: Op(
        f"whether {x} is between {c} and {c + d}, both included", f"{c} <= {x} <= {c + d}",
        lambda v: v in range(c, c + d + 1),
    ),
)  # fmt: skip
TEXTS: tuple[MakeOp, ...] = (
    lambda s, c, d: Op(f"the first {c} characters of {s}", f"{s}[:{c}]", lambda v: v[0:c]),
    lambda s, c, d: Op(f"the last {c} characters of {s}", f"{s}[-{c}:]", lambda v: v[max(0, len(v) - c) :]),
    lambda s, c, d: Op(f"{s} without its first {c} characters", f"{s}[{c}:]", lambda v: v.removeprefix(v[:c])),
    lambda s, c, d: Op(f"{s} repeated {c} times", f"{s} * {c}", lambda v: "".join([v] * c)),
    lambda s, c, d: Op(f"{s} backwards", f"{s}[::-1]", lambda v: "".join(reversed(v))),
    lambda s, c, d: Op(f"{s} in upper case", f"{s}.upper()", lambda v: "".join(map(str.upper, v))),
    lambda s, c, d: Op(f"the length of {s} plus {c}", f"len({s}) + {c}", lambda v: len(v) + c),
    lambda s, c, d: Op(f"the length of {s} times {c}", f"len({s}) * {c}", lambda v: len(v) * c),
    lambda s, c, d: Op(
        f"how often {_l(c)!r} occurs in {s}", f"{s}.count({_l(c)!r})", lambda v: sum(x == _l(c) for x in v)
    ),
    lambda s, c, d: Op(f"whether {s} contains {_l(c)!r}", f"{_l(c)!r} in {s}", lambda v: v.find(_l(c)) >= 0),
    lambda s, c, d: Op(f"{s} followed by {_w(c)!r}", f"{s} + {_w(c)!r}", lambda v: f"{v}{_w(c)}"),
    lambda s, c, d: Op(f"{_w(c)!r} followed by {s}", f"{_w(c)!r} + {s}", lambda v: f"{_w(c)}{v}"),
    lambda s, c, d: Op(
        f"{s} with every {_l(c)!r} replaced by {_w(d)[0]!r}", f"{s}.replace({_l(c)!r}, {_w(d)[0]!r})",
        lambda v: _w(d)[0].join(v.split(_l(c))),
    ),
    lambda s, c, d: Op(
        f"{s} without every {_l(c)!r}", f"{s}.replace({_l(c)!r}, '')", lambda v: "".join(x for x in v if x != _l(c))
    ),
    lambda s, c, d: Op(f"whether {s} is longer than {c}", f"len({s}) > {c}", lambda v: not len(v) <= c),
)  # fmt: skip
LISTS: tuple[MakeOp, ...] = (
    lambda v, c, d: Op(f"the sum of {v} plus {c}", f"sum({v}) + {c}", lambda a: sum(a, c)),
    lambda v, c, d: Op(f"the sum of {v} times {c}", f"sum({v}) * {c}", lambda a: sum(x * c for x in a)),
    lambda v, c, d: Op(f"the first {c} items of {v}", f"{v}[:{c}]", lambda a: [x for n, x in enumerate(a) if n < c]),
    lambda v, c, d: Op(f"{v} without its first {c} items", f"{v}[{c}:]", lambda a: list(a[len(a[:c]) :])),
    lambda v, c, d: Op(f"each item of {v} plus {c}", f"[x + {c} for x in {v}]", lambda a: [c + x for x in a]),
    lambda v, c, d: Op(f"each item of {v} times {c}", f"[x * {c} for x in {v}]", lambda a: [c * x for x in a]),
    lambda v, c, d: Op(f"the items of {v} greater than {c}", f"[x for x in {v} if x > {c}]", lambda a: _kept(a, c, 1)),
    lambda v, c, d: Op(f"the items of {v} less than {c}", f"[x for x in {v} if x < {c}]", lambda a: _kept(a, c, -1)),
    lambda v, c, d: Op(
        f"the items of {v} divisible by {c}", f"[x for x in {v} if x % {c} == 0]", lambda a: [x for x in a if not x % c]
    ),
    lambda v, c, d: Op(
        f"how many items of {v} are greater than {c}", f"sum(x > {c} for x in {v})", lambda a: len(_kept(a, c, 1))
    ),
    lambda v, c, d: Op(
        f"the sum of the items of {v} greater than {c}", f"sum(x for x in {v} if x > {c})",
        lambda a: sum(_kept(a, c, 1)),
    ),
    lambda v, c, d: Op(f"whether {c} is in {v}", f"{c} in {v}", lambda a: a.count(c) > 0),
    lambda v, c, d: Op(f"{v} with {c} added at the end", f"{v} + [{c}]", lambda a: [*a, c]),
    lambda v, c, d: Op(f"{v} with {c} added at the start", f"[{c}] + {v}", lambda a: [c, *a]),
    lambda v, c, d: Op(f"the largest item of {v} plus {c}", f"max({v}) + {c}", lambda a: sorted(a)[-1] + c),
    lambda v, c, d: Op(f"the smallest item of {v} minus {c}", f"min({v}) - {c}", lambda a: sorted(a)[0] - c),
    lambda v, c, d: Op(f"{v} in descending order", f"sorted({v}, reverse=True)", lambda a: sorted(a)[::-1]),
    lambda v, c, d: Op(f"{v} backwards", f"{v}[::-1]", lambda a: list(reversed(a))),
)  # fmt: skip


def _l(c: int) -> str:
    return inputs.LETTERS[c % len(inputs.LETTERS)]


def _w(c: int) -> str:
    return inputs.WORDS[c % len(inputs.WORDS)]


def _kept(items: Sequence[int], than: int, sign: int) -> list[int]:
    return [x for x in items if sign * (x - than) > 0]


def _small(draw: random.Random) -> int:
    return draw.randint(2, 6)


def _any(draw: random.Random) -> int:
    return draw.randint(2, 40)


def _maker(op: MakeOp, params: Sequence[str], names: Sequence[str], args: DrawArgs, small: bool) -> MakeTask:
    def make(draw: random.Random) -> TaskPlan:
        param, constant = draw.choice(params), (_small if small else _any)(draw)
        made = op(param, constant, draw.randint(2, 20))
        return TaskPlan(draw.choice(names), param, made.says, f"return {made.code}", made.right, args, shown=1)

    return make


def _sliced(op: MakeOp) -> bool:
    """Whether its constant counts characters or items, of which there are few."""
    return any(mark in op("v", 2, 2).says for mark in ("first 2", "last 2", "repeated", "longer"))


def makers() -> list[MakeTask]:
    """One for each operation."""
    kinds: list[tuple[tuple[MakeOp, ...], Sequence[str], Sequence[str], DrawArgs]] = [
        (NUMBERS, ("x", "n", "a"), ("f", "calc", "change"), lambda draw: [inputs.number(draw)]),
        (TEXTS, ("s", "text", "word"), ("f", "edit", "change"), lambda draw: [inputs.word(draw)]),
        (LISTS, ("xs", "items", "values"), ("f", "pick", "change"), lambda draw: [inputs.numbers(draw, -10, 45)]),
    ]
    return [_maker(op, params, names, args, _sliced(op)) for ops, params, names, args in kinds for op in ops]
