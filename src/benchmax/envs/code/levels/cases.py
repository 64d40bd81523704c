"""Several cases: thresholds, rules with exceptions, inputs that are empty or out of range."""

from __future__ import annotations

import random
from typing import Any

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

_WORDS = ("low", "high", "small", "large", "cold", "warm", "slow", "fast", "open", "closed", "red", "blue", "yes", "no")


def grade(draw: random.Random) -> TaskPlan:
    low, gap = draw.randint(5, 40), draw.randint(5, 40)
    high, (a, b, c) = low + gap, draw.sample(_WORDS, 3)
    return TaskPlan(
        "grade(n)",
        f"{a!r} if n is below {low}, {b!r} if it is below {high}, and {c!r} otherwise",
        f"if n < {low}:\n    return {a!r}\nif n < {high}:\n    return {b!r}\nreturn {c!r}",
        lambda n: (a, b, c)[(n >= low) + (n >= high)],
        lambda draw: [
            draw.choice((draw.randint(-10, low - 1), draw.randint(low, high), draw.randint(high, high + 60)))
        ],
        edges=[[low], [high], [low - 1], [high - 1]],
    )


def clamp(draw: random.Random) -> TaskPlan:
    low, high = draw.randint(-20, 10), draw.randint(11, 60)
    add = draw.randint(2, 9)
    return TaskPlan(
        "clamp(n)",
        f"n plus {add}, but never less than {low} and never more than {high}",
        f"return max({low}, min({high}, n + {add}))",
        lambda n: low if n + add < low else high if n + add > high else n + add,
        lambda draw: [draw.randint(low - 20, high + 20)],
        edges=[[low - add - 1], [high + add + 1]],
    )


def fizz(draw: random.Random) -> TaskPlan:
    p, q = draw.sample((2, 3, 4, 5, 7), 2)
    a, b, both = draw.sample(_WORDS, 3)
    return TaskPlan(
        "say(n)",
        f"{both!r} if n is divisible by {p} and {q}, {a!r} if only by {p}, {b!r} if only by {q}, otherwise n as text",
        f"if n % {p} == 0 and n % {q} == 0:\n    return {both!r}\nif n % {p} == 0:\n    return {a!r}\n"
        f"if n % {q} == 0:\n    return {b!r}\nreturn str(n)",
        lambda n: {(0, 0): f"{n}", (1, 0): a, (0, 1): b, (1, 1): both}[int(not n % p), int(not n % q)],
        lambda draw: [draw.randint(1, 120)],
        edges=[[p * q], [p * q * draw.randint(2, 4)], [p * (q + 1)], [q * (p * q + 1)]],
    )


def tariff(draw: random.Random) -> TaskPlan:
    free, first, second = draw.randint(3, 10), draw.randint(2, 6), draw.randint(7, 12)
    limit = free + draw.randint(5, 20)
    return TaskPlan(
        "cost(units)",
        f"the price of units: the first {free} are free, each one up to {limit} costs {first}, each one above costs "
        f"{second}; a negative number costs 0",
        f"paid = max(0, min(units, {limit}) - {free})\nabove = max(0, units - {limit})\n"
        f"return paid * {first} + above * {second}",
        lambda units: sum(0 if n <= free else first if n <= limit else second for n in range(1, units + 1)),
        lambda draw: [draw.randint(-3, limit + 25)],
        edges=[[-5], [free], [limit], [limit + 1]],
    )


def at_place(draw: random.Random) -> TaskPlan:
    place, otherwise = draw.randint(1, 5), draw.randint(-9, 99)
    end = draw.random() < 0.5
    where = f"item number {place} of items, counted from {'the end' if end else 'the start'} beginning with 1"
    code = f"items[-{place}]" if end else f"items[{place - 1}]"
    return TaskPlan(
        "pick(items)",
        f"{where}, or {otherwise} if there are not so many",
        f"if len(items) < {place}:\n    return {otherwise}\nreturn {code}",
        lambda items: otherwise if len(items) < place else (items[::-1] if end else items)[place - 1],
        lambda draw: [[draw.randint(-50, 50) for _ in range(draw.randint(0, 8))]],
        edges=[[[]], [list(range(2, place + 2))], [list(range(3, place + 2))]],
    )


def average(draw: random.Random) -> TaskPlan:
    least, otherwise = draw.randint(-5, 20), draw.randint(-9, 9)
    return TaskPlan(
        "average(numbers)",
        f"the average of the numbers that are at least {least}, rounded down, or {otherwise} if there are none",
        f"kept = [x for x in numbers if x >= {least}]\nreturn sum(kept) // len(kept) if kept else {otherwise}",
        lambda numbers: _average([x for x in numbers if not x < least], otherwise),
        lambda draw: [inputs.numbers(draw)],
        edges=[[[]], [[least - 1, least - 3]], [[least]]],
    )


def _average(kept: list[int], otherwise: int) -> int:
    total = sum(kept)
    return (total - total % len(kept)) // len(kept) if kept else otherwise


def password(draw: random.Random) -> TaskPlan:
    length, digits = draw.randint(4, 8), draw.randint(1, 3)
    good, bad = draw.sample(_WORDS, 2)
    return TaskPlan(
        "check(text)",
        f"{good!r} if text has at least {length} characters and at least {digits} of them are digits, "
        f"otherwise {bad!r}",
        f"count = sum(c.isdigit() for c in text)\nreturn {good!r} if len(text) >= {length} and count >= "
        f"{digits} else {bad!r}",
        lambda text: bad if text[length - 1 :] == "" or len([c for c in text if c in "0123456789"]) < digits else good,
        lambda draw: [_mixed(draw, length, digits)],
        edges=[[""], ["7" * length], ["a" * length], ["7" * (length - 1)], ["7" * digits + "b" * length]],
    )


def _mixed(draw: random.Random, length: int, digits: int) -> str:
    size, count = draw.randint(length - 1, length + 3), draw.randint(0, digits + 2)
    chars = [draw.choice("0123456789") for _ in range(count)] + [draw.choice(inputs.LETTERS) for _ in range(size)]
    chars = chars[:size]
    draw.shuffle(chars)
    return "".join(chars)


def plural(draw: random.Random) -> TaskPlan:
    letters, new = draw.choice((("y", "ies"), ("f", "ves"), ("s", "ses"), ("r", "rren")))
    added = draw.choice(("s", "n", "en"))
    return TaskPlan(
        "plural(word)",
        f"word with its final {letters!r} replaced by {new!r} if it ends so, with {added!r} added otherwise, "
        "and '' if it is empty",
        f"if not word:\n    return ''\nif word.endswith({letters!r}):\n    return word[:-1] + {new!r}\n"
        f"return word + {added!r}",
        lambda word: f"{word.removesuffix(letters)}{new if word[-1] == letters else added}" if word else word,
        lambda draw: [inputs.word(draw) + draw.choice((letters, "", ""))],
        edges=[[""], [letters]],
    )


def sign(draw: random.Random) -> TaskPlan:
    width = draw.randint(2, 15)
    a, b, c = draw.sample(_WORDS, 3)
    return TaskPlan(
        "compare(a, b)",
        f"{a!r} if a is more than {width} greater than b, {b!r} if b is more than {width} greater than a, "
        f"otherwise {c!r}",
        f"if a - b > {width}:\n    return {a!r}\nif b - a > {width}:\n    return {b!r}\nreturn {c!r}",
        lambda x, y: c if abs(x - y) <= width else (a, b)[x < y],
        lambda draw: _pair(draw, width),
        edges=[[width, 0], [0, width], [width + 1, 0], [0, width + 1]],
    )


def _pair(draw: random.Random, width: int) -> list[int]:
    a = draw.randint(-30, 30)
    return [a, a + draw.choice((0, draw.randint(1, width), draw.randint(width, width + 20))) * draw.choice((1, -1))]


def days(draw: random.Random) -> TaskPlan:
    grace, rate = draw.randint(1, 10), draw.randint(2, 9)
    most = rate * draw.randint(4, 12)
    return TaskPlan(
        "fine(days)",
        f"the fine for a book that is days late: nothing up to {grace} days, then {rate} for each further day, "
        f"but at most {most}",
        f"if days <= {grace}:\n    return 0\nreturn min({most}, (days - {grace}) * {rate})",
        lambda days: sorted((0, (days - grace) * rate, most))[1],
        lambda draw: [draw.randint(0, grace + most // rate + 10)],
        edges=[[0], [grace], [grace + 1], [grace + most // rate + 1]],
    )


def lookup(draw: random.Random) -> TaskPlan:
    keys = draw.sample(inputs.WORDS, draw.randint(3, 5))
    table: dict[str, int] = {key: draw.randint(1, 99) for key in keys}
    otherwise = draw.randint(-9, 0)
    listed = ", ".join(f"{value} for {key!r}" for key, value in table.items())
    return TaskPlan(
        "price(name)",
        f"{listed}, and {otherwise} for any other name; capital letters do not matter",
        f"prices = {table!r}\nreturn prices.get(name.lower(), {otherwise})",
        lambda name: next((value for key, value in table.items() if key == name.casefold()), otherwise),
        lambda draw: [_capitals(draw, draw.choice((*keys, *keys, inputs.word(draw))))],
        edges=[[""], [keys[0].upper()], *([key] for key in keys)],
    )


def _capitals(draw: random.Random, word: str) -> str:
    return draw.choice((word, word.capitalize(), word.upper()))


def split_text(draw: random.Random) -> TaskPlan:
    mark, place = draw.choice(",;:|/"), draw.randint(1, 3)
    otherwise = draw.choice(_WORDS)
    return TaskPlan(
        "field(line)",
        f"part number {place} of line, split at {mark!r} and counted from 1, without spaces around it; "
        f"{otherwise!r} if there is no such part or it is empty",
        f"parts = line.split({mark!r})\nif len(parts) < {place}:\n    return {otherwise!r}\n"
        f"return parts[{place - 1}].strip() or {otherwise!r}",
        lambda line: dict(enumerate(map(str.strip, line.split(mark)), 1)).get(place) or otherwise,
        lambda draw: [mark.join(_padded(draw) for _ in range(draw.randint(1, 5)))],
        edges=[[""], [mark * 4], [mark.join(["one", " two", "three "][:place])]],
    )


def _padded(draw: random.Random) -> str:
    return " " * draw.randint(0, 2) + draw.choice((inputs.word(draw), inputs.word(draw), "")) + " " * draw.randint(0, 1)


def second(draw: random.Random) -> TaskPlan:
    largest, otherwise = draw.random() < 0.5, draw.randint(-99, 99)
    kind = "largest" if largest else "smallest"
    code = f"values = sorted(set(numbers){', reverse=True' if largest else ''})"
    least = draw.randint(2, 3)
    place = {2: "second", 3: "third"}[least]
    return TaskPlan(
        "find(numbers)",
        f"the {place} {kind} of the different values in numbers, or {otherwise} if there are fewer than {least}",
        f"{code}\nreturn values[{least - 1}] if len(values) >= {least} else {otherwise}",
        lambda numbers: _ranked(numbers, largest, least, otherwise),
        lambda draw: [[draw.randint(-9, 9) for _ in range(draw.randint(0, 7))]],
        edges=[[[]], [[5]], [[4, 4]], [[7, 2, 7, 5][: least + 1]]],
    )


def _ranked(numbers: list[int], largest: bool, place: int, otherwise: int) -> int:
    left = list(numbers)
    for _ in range(place - 1):
        found: Any = max(left) if largest and left else min(left, default=None)
        left = [x for x in left if x != found]
    return otherwise if not left else max(left) if largest else min(left)


MAKERS: tuple[MakeTask, ...] = (
    grade, clamp, fizz, tariff, at_place, average, password, plural, sign, days, lookup, split_text, second,
)  # fmt: skip
