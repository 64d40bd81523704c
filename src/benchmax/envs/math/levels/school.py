"""Fractions, equations and stories: the calculation has to be found before it can be typed."""

from __future__ import annotations

import random
from fractions import Fraction

from benchmax.envs.math.levels.task import Task

_NAMES = ("Ada", "Ben", "Chen", "Dina", "Emil", "Fatou", "Gita", "Hugo", "Ines", "Jomo", "Kira", "Luis")
_GOODS = ("apples", "pens", "books", "tickets", "candles", "cups", "stamps", "bulbs")


def _fraction(draw: random.Random) -> Fraction:
    bottom = draw.randint(3, 12)
    top = draw.choice([each for each in range(1, bottom) if Fraction(each, bottom).denominator == bottom])
    return Fraction(top, bottom)


def fraction_sum(draw: random.Random) -> Task:
    a, b, sign = _fraction(draw), _fraction(draw), draw.choice("+-")
    value = a + b if sign == "+" else a - b
    return Task(f"What is {a} {sign} {b}?", str(value), (f"{a} {sign} {b}",))


def fraction_product(draw: random.Random) -> Task:
    a, b = _fraction(draw), draw.randint(7, 60)
    return Task(f"What is {a} of {b}?", str(a * b), (f"{a} * {b}",))


def percentage(draw: random.Random) -> Task:
    share, whole = draw.choice((5, 12, 15, 20, 24, 35, 45, 60, 85)), 20 * draw.randint(3, 60)
    truth = f"{share * whole // 100}" if share * whole % 100 == 0 else f"{share * whole / 100:g}"
    return Task(f"What is {share}% of {whole}?", truth, (f"{share} / 100 * {whole}",))


def average(draw: random.Random) -> Task:
    values = [draw.randint(11, 99) for _ in range(draw.randint(3, 5))]
    total = " + ".join(map(str, values))
    return Task(
        f"What is the average of {', '.join(map(str, values))}?",
        str(Fraction(sum(values), len(values))),
        (f"({total}) / {len(values)}",),
    )


def _signed(value: int) -> str:
    return f"- {-value}" if value < 0 else f"+ {value}"


def linear(draw: random.Random) -> Task:
    a, x, b = draw.randint(3, 19), draw.randint(-30, 60), draw.choice((-1, 1)) * draw.randint(3, 60)
    right = a * x + b
    return Task(f"Solve for x: {a}x {_signed(b)} = {right}", str(x), (f"({right} {_signed(-b)}) / {a}",))


def two_unknowns(draw: random.Random) -> Task:
    larger = draw.randint(20, 90)
    smaller = draw.randint(2, larger - 5)
    total, gap = larger + smaller, larger - smaller
    return Task(
        f"Two numbers add up to {total} and differ by {gap}. Which are they?",
        f"\\{{{smaller}, {larger}\\}}",
        (f"({total} + {gap}) / 2", f"{total} - @0"),
        "@0, @1",
    )


def quadratic(draw: random.Random) -> Task:
    p = draw.choice((-1, 1)) * draw.randint(1, 15)
    q = draw.choice([each for each in range(-15, 16) if each and abs(each) != abs(p)])
    b, c = -(p + q), p * q
    middle = _signed(b).removesuffix("1") if abs(b) == 1 else _signed(b)
    return Task(
        f"Solve x^2 {middle}x {_signed(c)} = 0.",
        f"\\{{{min(p, q)}, {max(p, q)}\\}}",
        (f"sqrt(({b})**2 - 4 * ({c}))", f"({-b} + @0) / 2", f"({-b} - @0) / 2"),
        "@1, @2",
    )


def sequence(draw: random.Random) -> Task:
    first, gap, place = draw.randint(2, 40), draw.randint(3, 15), draw.randint(12, 60)
    shown = ", ".join(str(first + n * gap) for n in range(4))
    return Task(
        f"What is term number {place} of the arithmetic sequence {shown}, ...?",
        str(first + (place - 1) * gap),
        (f"{first} + {place - 1} * {gap}",),
    )


def shopping(draw: random.Random) -> Task:
    name, goods, count, price = draw.choice(_NAMES), draw.choice(_GOODS), draw.randint(3, 19), draw.randint(2, 24)
    paid = count * price + draw.randint(1, 99)
    return Task(
        f"{name} buys {count} {goods} for {price} dollars each and pays with {paid} dollars. "
        "How many dollars come back?",
        str(paid - count * price),
        (f"{paid} - {count} * {price}",),
    )


def travel(draw: random.Random) -> Task:
    name, first, second = draw.choice(_NAMES), draw.randint(41, 95), draw.randint(41, 95)
    hours, more = draw.randint(2, 6), draw.randint(2, 6)
    return Task(
        f"{name} drives {hours} hours at {first} km/h, then {more} hours at {second} km/h. How many km is that?",
        str(hours * first + more * second),
        (f"{hours} * {first} + {more} * {second}",),
    )


def savings(draw: random.Random) -> Task:
    name, start, weekly, weeks = draw.choice(_NAMES), draw.randint(20, 300), draw.randint(5, 45), draw.randint(4, 30)
    spent = draw.randint(10, 19 + weekly)
    return Task(
        f"{name} has {start} dollars, saves {weekly} dollars a week for {weeks} weeks and then spends {spent} dollars. "
        "How many dollars are left?",
        str(start + weekly * weeks - spent),
        (f"{start} + {weekly} * {weeks} - {spent}",),
    )


def sharing(draw: random.Random) -> Task:
    people, each, kept = draw.randint(3, 12), draw.randint(4, 30), draw.randint(2, 40)
    name, goods = draw.choice(_NAMES), draw.choice(_GOODS)
    total = people * each + kept
    return Task(
        f"{name} has {total} {goods}, keeps {kept} and shares the rest equally among {people} friends. "
        f"How many {goods} does each friend get?",
        str(each),
        (f"({total} - {kept}) / {people}",),
    )
