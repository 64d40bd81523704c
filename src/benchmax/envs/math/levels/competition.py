"""Questions in the style of competitions: answers are numbers, fractions, radicals, multiples of pi, intervals."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from benchmax.envs.math.levels.task import Task


def committee(draw: random.Random) -> Task:
    women, men = draw.randint(4, 9), draw.randint(4, 9)
    a, b = draw.randint(2, 3), draw.randint(2, 3)
    return Task(
        f"A committee of {a} women and {b} men is chosen from {women} women and {men} men. "
        "In how many ways can this be done?",
        str(math.comb(women, a) * math.comb(men, b)),
        (f"comb({women}, {a}) * comb({men}, {b})",),
    )


def remainder(draw: random.Random) -> Task:
    base, exponent, modulus = draw.randint(2, 19), draw.randint(20, 99), draw.randint(101, 997)
    return Task(
        f"What is the remainder when {base}^{exponent} is divided by {modulus}?",
        str(pow(base, exponent, modulus)),
        (f"{base}**{exponent} % {modulus}",),
    )


def two_dice(draw: random.Random) -> Task:
    sides, more = draw.randint(5, 20), draw.randint(5, 20)
    total = draw.randint(3, sides + more - 1)
    ways = sum(1 for a in range(1, sides + 1) if 1 <= total - a <= more)
    chance = Fraction(ways, sides * more)
    low, high = f"max(1, {total} - {more})", f"min({sides}, {total} - 1)"
    return Task(
        f"A fair die with {sides} faces numbered from 1 and a fair die with {more} faces numbered from 1 are rolled. "
        f"What is the probability that they show {total} together?",
        str(chance),
        (f"{high} - {low} + 1", f"{sides} * {more}", "gcd(@0, @1)", "@0 / @2", "@1 / @2"),
        "\\frac{@3}{@4}",
    )


def distance(draw: random.Random) -> Task:
    scale, inside = draw.randint(2, 9), draw.choice([(1, 1), (1, 2), (1, 3), (2, 3), (1, 4), (2, 5), (3, 5)])
    x, y = draw.randint(-9, 9), draw.randint(-9, 9)
    far, near = scale * inside[0], scale * inside[1]
    radicand = inside[0] ** 2 + inside[1] ** 2
    return Task(
        f"What is the distance between ({x}, {y}) and ({x + far}, {y + near}), in simplest radical form?",
        f"{scale}\\sqrt{{{radicand}}}",
        (f"({x + far} - ({x}))**2 + ({y + near} - ({y}))**2", f"gcd({far}, {near})", "@0 / @1**2"),
        "@1\\sqrt{@2}",
    )


def circle(draw: random.Random) -> Task:
    outer = draw.randint(6, 40)
    inner = draw.randint(2, outer - 1)
    return Task(
        f"Two circles with the same centre have radii {outer} and {inner}. "
        "What is the area of the ring between them, in terms of pi?",
        f"{outer**2 - inner**2}\\pi",
        (f"{outer}**2 - {inner}**2",),
        "@0\\pi",
    )


def inequality(draw: random.Random) -> Task:
    scale, low, width, shift = draw.randint(2, 9), draw.randint(-20, 20), draw.randint(2, 30), draw.randint(1, 30)
    left, right = scale * low + shift, scale * (low + width) + shift
    return Task(
        f"Solve {left} <= {scale}x + {shift} < {right}. Give the solution as an interval.",
        f"[{low}, {low + width})",
        (f"({left} - {shift}) / {scale}", f"({right} - {shift}) / {scale}"),
        "[@0, @1)",
    )


def common_divisor(draw: random.Random) -> Task:
    shared = draw.randint(12, 99)
    a, b = shared * draw.randint(11, 60), shared * draw.randint(11, 60)
    return Task(
        f"What is the least common multiple of {a} and {b}, divided by their greatest common divisor?",
        str(math.lcm(a, b) // math.gcd(a, b)),
        (f"lcm({a}, {b}) / gcd({a}, {b})",),
    )


def sum_of_squares(draw: random.Random) -> Task:
    first, last = draw.randint(5, 40), draw.randint(41, 200)
    total = sum(n * n for n in range(first, last + 1))
    before = first - 1
    return Task(
        f"What is the sum of the squares of all whole numbers from {first} to {last}?",
        str(total),
        (f"{last} * {last + 1} * {2 * last + 1} / 6 - {before} * {first} * {2 * before + 1} / 6",),
    )
