"""Two to four steps, one after another: numbers kept, changed and summed up; words kept, changed and joined."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

DrawArgs: TypeAlias = Callable[[random.Random], Sequence[Any]]


class Step(NamedTuple):
    """One step: in words, as an expression of what it has, and what it computes."""

    says: str
    code: str
    right: Callable[[Any], Any]


MakeStep: TypeAlias = Callable[[str, int], Step]
"""From the name of what it works on, and a constant."""

KEEP: tuple[MakeStep, ...] = (
    lambda v, c: Step(f"keep those above {c}", f"[x for x in {v} if x > {c}]", lambda a: _kept(a, lambda x: x > c)),
    lambda v, c: Step(f"keep those at most {c}", f"[x for x in {v} if x <= {c}]", lambda a: _kept(a, lambda x: x <= c)),
    lambda v, c: Step("keep the even ones", f"[x for x in {v} if x % 2 == 0]", lambda a: _kept(a, lambda x: not x % 2)),
    lambda v, c: Step("keep the odd ones", f"[x for x in {v} if x % 2]", lambda a: _kept(a, lambda x: x % 2 == 1)),
    lambda v, c: Step("remove the last one", f"{v}[:-1]", lambda a: list(a[: len(a) - 1]) if a else []),
    lambda v, c: Step("keep only the first of equal ones", f"list(dict.fromkeys({v}))", lambda a: _once(a)),
)  # fmt: skip
CHANGE: tuple[MakeStep, ...] = (
    lambda v, c: Step(f"add {c} to each", f"[x + {c} for x in {v}]", lambda a: [c + x for x in a]),
    lambda v, c: Step(f"multiply each by {c}", f"[x * {c} for x in {v}]", lambda a: [c * x for x in a]),
    lambda v, c: Step("square each", f"[x ** 2 for x in {v}]", lambda a: [x * x for x in a]),
    lambda v, c: Step(f"take each modulo {c}", f"[x % {c} for x in {v}]", lambda a: [x - x // c * c for x in a]),
    lambda v, c: Step("negate each", f"[-x for x in {v}]", lambda a: [0 - x for x in a]),
    lambda v, c: Step("put them in ascending order", f"sorted({v})", lambda a: sorted(a)),
    lambda v, c: Step("put them in descending order", f"sorted({v}, reverse=True)", lambda a: sorted(a)[::-1]),
)  # fmt: skip
END: tuple[MakeStep, ...] = (
    lambda v, c: Step("return their sum", f"sum({v})", lambda a: sum(x for x in a)),
    lambda v, c: Step("return the list", v, lambda a: list(a)),
    lambda v, c: Step(f"return the first {c % 3 + 2} of them", f"{v}[:{c % 3 + 2}]", lambda a: list(a[0 : c % 3 + 2])),
    lambda v, c: Step(f"return their sum plus {c}", f"sum({v}) + {c}", lambda a: sum(a, c)),
    lambda v, c: Step(f"return the largest, or {c} if there are none", f"max({v}, default={c})", lambda a: _most(a, c)),
    lambda v, c: Step("return them as text, joined with commas", f"','.join(str(x) for x in {v})", lambda a: _text(a)),
)  # fmt: skip
KEEP_WORDS: tuple[MakeStep, ...] = (
    lambda v, c: Step(
        f"keep those longer than {c % 4 + 3}", f"[w for w in {v} if len(w) > {c % 4 + 3}]",
        lambda a: _kept(a, lambda w: len(w) > c % 4 + 3),
    ),
    lambda v, c: Step(
        f"keep those that contain {_l(c)!r}", f"[w for w in {v} if {_l(c)!r} in w]",
        lambda a: _kept(a, lambda w: _l(c) in w),
    ),
    lambda v, c: Step(
        f"keep those without {_l(c)!r}", f"[w for w in {v} if {_l(c)!r} not in w]",
        lambda a: _kept(a, lambda w: w.count(_l(c)) == 0),
    ),
    lambda v, c: Step("remove the first one", f"{v}[1:]", lambda a: [w for n, w in enumerate(a) if n]),
)  # fmt: skip
CHANGE_WORDS: tuple[MakeStep, ...] = (
    lambda v, c: Step("reverse each", f"[w[::-1] for w in {v}]", lambda a: ["".join(reversed(w)) for w in a]),
    lambda v, c: Step("turn each to upper case", f"[w.upper() for w in {v}]", lambda a: list(map(str.upper, a))),
    lambda v, c: Step(f"add {_l(c)!r} to each", f"[w + {_l(c)!r} for w in {v}]", lambda a: [f"{w}{_l(c)}" for w in a]),
    lambda v, c: Step(
        f"cut each to {c % 3 + 2} letters", f"[w[:{c % 3 + 2}] for w in {v}]", lambda a: _cut(a, c % 3 + 2)
    ),
    lambda v, c: Step("put them in alphabetical order", f"sorted({v})", lambda a: sorted(a)),
    lambda v, c: Step("put the last one first, and so on", f"{v}[::-1]", lambda a: list(reversed(a))),
)  # fmt: skip
END_WORDS: tuple[MakeStep, ...] = (
    lambda v, c: Step(f"return them joined with {_j(c)!r}", f"{_j(c)!r}.join({v})", lambda a: _joined(a, _j(c))),
    lambda v, c: Step("return the list", v, lambda a: list(a)),
    lambda v, c: Step("return their lengths", f"[len(w) for w in {v}]", lambda a: list(map(len, a))),
    lambda v, c: Step(
        f"return the number of their letters plus {c}", f"sum(len(w) for w in {v}) + {c}",
        lambda a: len(_joined(a, "")) + c,
    ),
)  # fmt: skip


def _l(c: int) -> str:
    return inputs.LETTERS[c % len(inputs.LETTERS)]


def _j(c: int) -> str:
    return "-+/_. "[c % 6]


def _kept(items: Sequence[Any], holds: Callable[[Any], bool]) -> list[Any]:
    return [x for x in items if holds(x)]


def _once(items: Sequence[Any]) -> list[Any]:
    return [x for n, x in enumerate(items) if x not in items[:n]]


def _most(items: Sequence[int], otherwise: int) -> int:
    return sorted(items)[-1] if items else otherwise


def _text(items: Sequence[int]) -> str:
    return repr(list(items)).replace(" ", "")[1:-1]


def _cut(words: Sequence[str], length: int) -> list[str]:
    return [w[0:length] for w in words]


def _joined(words: Sequence[str], between: str) -> str:
    text = ""
    for place, word in enumerate(words):
        text += (between if place else "") + word
    return text


def _chain(draw: random.Random, param: str, kinds: Sequence[tuple[MakeStep, ...]]) -> list[Step]:
    return [draw.choice(kind)(param, draw.randint(2, 20)) for kind in kinds]


def _maker(
    params: Sequence[str], noun: str, kinds: Sequence[tuple[MakeStep, ...]], args: DrawArgs, edges: Sequence[Any]
) -> MakeTask:
    def make(draw: random.Random) -> TaskPlan:
        param = draw.choice(params)
        steps = _chain(draw, param, kinds)

        def right(value: Any) -> Any:
            for step in steps:
                value = step.right(value)
            return value

        asked = f"what these steps do with {noun} in {param}: " + ", ".join(step.says for step in steps)
        body = "".join(f"{param} = {step.code}\n" for step in steps[:-1]) + f"return {steps[-1].code}"
        name = draw.choice(("process", "steps", "work", "apply"))
        return TaskPlan(name, param, asked, body, right, args, edges=edges)

    return make


def makers() -> list[MakeTask]:
    numbers, words = ("xs", "numbers", "values"), ("words", "names", "items")
    chains = [(KEEP, END), (CHANGE, END), (KEEP, CHANGE, END), (CHANGE, KEEP, END), (KEEP, CHANGE, KEEP, END)]
    of_words = [(KEEP_WORDS, END_WORDS), (CHANGE_WORDS, END_WORDS), (KEEP_WORDS, CHANGE_WORDS, END_WORDS)]
    edges: list[Any] = [[[]]]
    return [
        *(_maker(numbers, "the numbers", kinds, lambda draw: [inputs.numbers(draw)], edges) for kinds in chains),
        *(_maker(words, "the words", kinds, lambda draw: [inputs.words(draw)], edges) for kinds in of_words),
    ]
