"""Two to four steps, one after another: numbers kept, changed and summed up; words kept, changed and joined."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.inputs import DrawArgs
from benchmax.envs.code.levels.operations import Constants, Op
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

Kinds: TypeAlias = Sequence[tuple[Op, ...]]
"""Of which operations each step of a chain is."""

KEEP = (
    Op("keep those above {c}", "[x for x in {v} if x > {c}]", lambda v, k: [x for x in v if x > k.c]),
    Op("keep those at most {c}", "[x for x in {v} if x <= {c}]", lambda v, k: [x for x in v if x <= k.c]),
    Op("keep the even ones", "[x for x in {v} if x % 2 == 0]", lambda v, k: [x for x in v if not x % 2]),
    Op("keep the odd ones", "[x for x in {v} if x % 2]", lambda v, k: [x for x in v if x % 2 == 1]),
    Op("remove the last one", "{v}[:-1]", lambda v, k: list(v[: len(v) - 1]) if v else []),
    Op("keep only the first of equal ones", "list(dict.fromkeys({v}))",
       lambda v, k: [x for n, x in enumerate(v) if x not in v[:n]]),
)  # fmt: skip
CHANGE = (
    Op("add {c} to each", "[x + {c} for x in {v}]", lambda v, k: [k.c + x for x in v]),
    Op("multiply each by {c}", "[x * {c} for x in {v}]", lambda v, k: [k.c * x for x in v]),
    Op("square each", "[x ** 2 for x in {v}]", lambda v, k: [x * x for x in v]),
    Op("take each modulo {c}", "[x % {c} for x in {v}]", lambda v, k: [x - x // k.c * k.c for x in v]),
    Op("negate each", "[-x for x in {v}]", lambda v, k: [0 - x for x in v]),
    Op("put them in ascending order", "sorted({v})", lambda v, k: sorted(v)),
    Op("put them in descending order", "sorted({v}, reverse=True)", lambda v, k: sorted(v)[::-1]),
)
END = (
    Op("return their sum", "sum({v})", lambda v, k: sum(x for x in v)),
    Op("return the list", "{v}", lambda v, k: list(v)),
    Op("return the first {few} of them", "{v}[:{few}]", lambda v, k: list(v[0 : k.few])),
    Op("return their sum plus {c}", "sum({v}) + {c}", lambda v, k: sum(v, k.c)),
    Op("return the largest, or {c} if there are none", "max({v}, default={c})",
       lambda v, k: sorted(v)[-1] if v else k.c),
    Op("return them as text, joined with commas", "','.join(str(x) for x in {v})",
       lambda v, k: repr(list(v)).replace(" ", "")[1:-1]),
)  # fmt: skip
KEEP_WORDS = (
    Op("keep those longer than {some}", "[w for w in {v} if len(w) > {some}]",
       lambda v, k: [w for w in v if len(w) > k.some]),
    Op("keep those that contain {letter!r}", "[w for w in {v} if {letter!r} in w]",
       lambda v, k: [w for w in v if k.letter in w]),
    Op("keep those without {letter!r}", "[w for w in {v} if {letter!r} not in w]",
       lambda v, k: [w for w in v if w.count(k.letter) == 0]),
    Op("remove the first one", "{v}[1:]", lambda v, k: [w for n, w in enumerate(v) if n]),
)  # fmt: skip
CHANGE_WORDS = (
    Op("reverse each", "[w[::-1] for w in {v}]", lambda v, k: ["".join(reversed(w)) for w in v]),
    Op("turn each to upper case", "[w.upper() for w in {v}]", lambda v, k: list(map(str.upper, v))),
    Op("add {letter!r} to each", "[w + {letter!r} for w in {v}]", lambda v, k: [f"{w}{k.letter}" for w in v]),
    Op("cut each to {few} letters", "[w[:{few}] for w in {v}]", lambda v, k: [w[0 : k.few] for w in v]),
    Op("put them in alphabetical order", "sorted({v})", lambda v, k: sorted(v)),
    Op("put the last one first, and so on", "{v}[::-1]", lambda v, k: list(reversed(v))),
)
END_WORDS = (
    Op("return them joined with {sign!r}", "{sign!r}.join({v})", lambda v, k: _joined(v, k.sign)),
    Op("return the list", "{v}", lambda v, k: list(v)),
    Op("return their lengths", "[len(w) for w in {v}]", lambda v, k: list(map(len, v))),
    Op("return the number of their letters plus {c}", "sum(len(w) for w in {v}) + {c}",
       lambda v, k: len(_joined(v, "")) + k.c),
)  # fmt: skip


def _joined(words: Sequence[str], between: str) -> str:
    return "".join((between if place else "") + word for place, word in enumerate(words))


def _maker(noun: str, params: Sequence[str], kinds: Kinds, args: DrawArgs) -> MakeTask:
    def make(draw: random.Random) -> TaskPlan:
        param = draw.choice(params)
        steps = [draw.choice(kind).step(param, Constants.of(draw.randint(2, 20))) for kind in kinds]

        def right(value: Any) -> Any:
            for step in steps:
                value = step.right(value)
            return value

        asked = f"what these steps do with the {noun} in {param}: " + ", ".join(step.says for step in steps)
        body = "".join(f"{param} = {step.code}\n" for step in steps[:-1]) + f"return {steps[-1].code}"
        name = draw.choice(("process", "steps", "work", "apply"))
        return TaskPlan(f"{name}({param})", asked, body, right, args, edges=[[[]]])

    return make


_OF_NUMBERS: tuple[Kinds, ...] = (
    (KEEP, END), (CHANGE, END), (KEEP, CHANGE, END), (CHANGE, KEEP, END), (KEEP, CHANGE, KEEP, END),
)  # fmt: skip
_OF_WORDS: tuple[Kinds, ...] = (
    (KEEP_WORDS, END_WORDS),
    (CHANGE_WORDS, END_WORDS),
    (KEEP_WORDS, CHANGE_WORDS, END_WORDS),
)
MAKERS = [
    *(
        _maker("numbers", ("xs", "numbers", "values"), kinds, lambda draw: [inputs.numbers(draw)])
        for kinds in _OF_NUMBERS
    ),
    *(_maker("words", ("words", "names", "items"), kinds, lambda draw: [inputs.words(draw)]) for kinds in _OF_WORDS),
]
