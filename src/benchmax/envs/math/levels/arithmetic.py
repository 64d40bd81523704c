"""Numbers and signs: one call of the calculator copies the question, one answer copies the result."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

from benchmax.envs.math.levels.task import MakeTask, Task


def _asked(expression: str, value: int) -> Task:
    return Task(f"{expression}?", str(value), (expression,))


def sum_of_digits(draw: random.Random) -> Task:
    digits = [draw.randint(0, 9) for _ in range(draw.choice((2, 3, 3)))]
    return _asked(" + ".join(map(str, digits)), sum(digits))


def _of_two(sign: str, compute: Callable[[int, int], int]) -> MakeTask:
    def make(draw: random.Random) -> Task:
        a, b = draw.randint(11, 99), draw.randint(11, 99)
        return _asked(f"{a} {sign} {b}", compute(a, b))

    return make


sum_of_two, difference, product = _of_two("+", operator.add), _of_two("-", operator.sub), _of_two("*", operator.mul)


def chain(draw: random.Random) -> Task:
    a, b, c, d = (draw.randint(11, 99) for _ in range(4))
    return _asked(f"{a} * {b} + {c} - {d}", a * b + c - d)


def brackets(draw: random.Random) -> Task:
    a, b, c, d = (draw.randint(11, 99) for _ in range(4))
    return _asked(f"({a} + {b}) * {c} - {d}", (a + b) * c - d)


def brackets_divided(draw: random.Random) -> Task:
    divisor, quotient, a = draw.randint(3, 19), draw.randint(11, 99), draw.randint(11, 99)
    b = divisor * quotient - a
    sign = f"- {-b}" if b < 0 else f"+ {b}"
    return _asked(f"({a} {sign}) / {divisor}", quotient)
