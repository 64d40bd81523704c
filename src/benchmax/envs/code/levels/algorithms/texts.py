"""Texts: codes, brackets, counts, distances, small languages."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from functools import cache

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

_LOWER = "abcdefghijklmnopqrstuvwxyz"


def base(draw: random.Random) -> TaskPlan:
    signs = "".join(draw.sample(_LOWER, draw.randint(3, 9)))
    size = len(signs)
    body = f"""
        signs, text = {signs!r}, ''
        while n >= {size}:
            text = signs[n % {size}] + text
            n //= {size}
        return signs[n] + text
    """

    def right(n: int) -> str:
        length = next(k for k in itertools.count(1) if size**k > n)
        return "".join(signs[n // size**k % size] for k in reversed(range(length)))

    return TaskPlan(
        "write_number(n)",
        f"n in base {size} with the letters of {signs!r} as digits, the first meaning 0",
        body,
        right,
        lambda draw: [draw.randint(0, 5000)],
        edges=[[0], [size - 1], [size], [size * size]],
    )


def shifted(draw: random.Random) -> TaskPlan:
    by, kept = draw.randint(1, 25), "".join(sorted(draw.sample("aeioulnrst", draw.randint(1, 4))))
    body = f"""
        result = ''
        for c in text:
            if 'a' <= c <= 'z' and c not in {kept!r}:
                c = chr((ord(c) - 97 + {by}) % 26 + 97)
            result += c
        return result
    """
    table = {c: _LOWER[(n + by) % 26] for n, c in enumerate(_LOWER) if c not in kept}
    return TaskPlan(
        "encode(text)",
        f"text with each lower-case letter except those of {kept!r} moved {by} places on in the alphabet, "
        "after z comes a",
        body,
        lambda text: text.translate(str.maketrans(table)),
        lambda draw: [inputs.sentence(draw)],
        edges=[[""], [kept], ["Zz 9!"]],
    )


def runs(draw: random.Random) -> TaskPlan:
    least, mark, after = draw.randint(2, 4), draw.choice(["*", "#", "x", "~", ""]), draw.random() < 0.5
    form = "c + {mark!r} + str(count)" if after else "str(count) + {mark!r} + c"
    body = f"""
        result, n = '', 0
        while n < len(text):
            c, count = text[n], 1
            while n + count < len(text) and text[n + count] == c:
                count += 1
            result += {form.format(mark=mark)} if count >= {least} else c * count
            n += count
        return result
    """

    def right(text: str) -> str:
        def packed(found: re.Match[str]) -> str:
            c, count = found[1], str(len(found[0]))
            return f"{c}{mark}{count}" if after else f"{count}{mark}{c}"

        return re.sub(rf"([a-z])\1{{{least - 1},}}", packed, text)

    shown = f"the letter, {mark!r} and the count" if after else f"the count, {mark!r} and the letter"
    shown = shown.replace(", '' and", " and")
    return TaskPlan(
        "pack(text)",
        f"text, which has only letters, with every run of {least} or more equal letters replaced by {shown}; "
        "shorter runs stay",
        body,
        right,
        lambda draw: ["".join(draw.choice("abc") * draw.choice((1, 1, 2, 3, 4, 5)) for _ in range(draw.randint(1, 6)))],
        edges=[[""], ["a" * (least - 1)], ["b" * least], ["c" * 12]],
    )


def brackets(draw: random.Random) -> TaskPlan:
    pairs = dict(draw.sample([("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"), ("«", "»")], draw.randint(2, 3)))
    good, extra = draw.randint(-9, -1), draw.randint(0, 5)
    body = f"""
        pairs, waiting = {pairs!r}, []
        for place, c in enumerate(text):
            if c in pairs:
                waiting.append(pairs[c])
            elif c in pairs.values() and (not waiting or waiting.pop() != c):
                return place + {extra}
        return len(text) + {extra} if waiting else {good}
    """

    def right(text: str) -> int:
        for end in range(1, len(text) + 1):
            left = "".join(c for c in text[:end] if c in pairs or c in pairs.values())
            while left != (left := re.sub("|".join(re.escape(a + b) for a, b in pairs.items()), "", left)):
                pass
            if any(c in pairs.values() for c in left):
                return end - 1 + extra
        return good if not len(text) or not left else len(text) + extra

    listed = " ".join(a + b for a, b in pairs.items())
    plus = f" plus {extra}" if extra else ""
    return TaskPlan(
        "first_wrong(text)",
        f"{good} if the brackets {listed} in text are closed in the right order, otherwise the place{plus}, counted "
        f"from 0, of the first closing one that is wrong, or the length of text{plus} if only closing ones are missing",
        body,
        right,
        lambda draw: [_bracketed(draw, pairs)],
        edges=[[""], ["ab"], [next(iter(pairs))]],
    )


def _bracketed(draw: random.Random, pairs: dict[str, str]) -> str:
    text = draw.choice(("", "x"))
    for _ in range(draw.randint(1, 4)):
        a, b = draw.choice(list(pairs.items()))
        text = draw.choice((f"{a}{text}{b}", f"{text}{a}{b}", f"{a}y{b}{text}"))
    if draw.random() < 0.6:
        place = draw.randrange(len(text))
        text = text[:place] + draw.choice(("", *pairs, *pairs.values())) + text[place + 1 :]
    return text


def distance(draw: random.Random) -> TaskPlan:
    add, remove, change = (draw.randint(1, 4) for _ in range(3))
    body = f"""
        costs = [n * {add} for n in range(len(b) + 1)]
        for x in a:
            row = [costs[0] + {remove}]
            for n, y in enumerate(b):
                changed = costs[n] + (0 if x == y else {change})
                row.append(min(changed, costs[n + 1] + {remove}, row[n] + {add}))
            costs = row
        return costs[-1]
    """

    def right(a: str, b: str) -> int:
        @cache
        def cost(m: int, n: int) -> int:
            if m == len(a) or n == len(b):
                return (len(a) - m) * remove + (len(b) - n) * add
            kept = [cost(m + 1, n + 1)] if a[m] == b[n] else []
            return min([*kept, cost(m + 1, n + 1) + change, cost(m + 1, n) + remove, cost(m, n + 1) + add])

        return cost(0, 0)

    return TaskPlan(
        "turn_into(a, b)",
        f"the least cost of turning text a into text b, where adding a letter costs {add}, removing one {remove} and "
        f"changing one {change}",
        body,
        right,
        lambda draw: [inputs.word(draw), inputs.word(draw)],
        edges=[["", ""], ["", "abc"], ["abc", ""]],
    )


def ranking(draw: random.Random) -> TaskPlan:
    most, least = draw.randint(2, 4), draw.randint(1, 3)
    ignored = sorted(draw.sample(inputs.WORDS[:8], 2))
    body = f"""
        counts = {{}}
        for word in text.lower().split():
            if word not in {ignored!r} and len(word) > {least}:
                counts[word] = counts.get(word, 0) + 1
        return sorted(counts, key=lambda word: (-counts[word], word))[:{most}]
    """

    def right(text: str) -> list[str]:
        words = [word for word in text.casefold().split(" ") if len(word) > least and word not in ignored]
        found: list[str] = []
        while len(found) < most and (left := sorted({*words} - {*found})):
            found.append(max(left, key=words.count))
        return found

    return TaskPlan(
        "top_words(text)",
        f"the {most} most frequent words of text in lower case, of equally frequent ones the alphabetically first; "
        f"{ignored[0]!r}, {ignored[1]!r} and words of at most {least} letters do not count",
        body,
        right,
        lambda draw: [" ".join(draw.choice((*inputs.WORDS[:8], "a", "Ab", "Sun")) for _ in range(draw.randint(3, 16)))],
        edges=[[""], [ignored[0]]],
    )


_MACHINE: dict[str, tuple[str, str, Callable[[int, int], int]]] = {
    "+": ("adds both", "a + b", lambda a, b: a + b),
    "-": ("takes the upper one from the lower one", "a - b", lambda a, b: a - b),
    "*": ("multiplies both", "a * b", lambda a, b: a * b),
    "^": ("keeps the larger", "max(a, b)", lambda a, b: b if b > a else a),
}
"""Signs: what they do, in words, as an expression, and in another way."""


def machine(draw: random.Random) -> TaskPlan:
    signs = draw.sample("+-*^", 3)
    start, add = draw.randint(1, 9), draw.randint(1, 5)
    branches = "".join(
        f"{'if' if not n else 'elif'} sign == {s!r}: stack.append({_MACHINE[s][1]})\n" for n, s in enumerate(signs)
    )
    indented = branches.replace("\n", "\n                ").rstrip()
    body = f"""
        stack = [{start}]
        for sign in program.split():
            if sign.isdigit():
                stack.append(int(sign) + {add})
            elif len(stack) > 1:
                b, a = stack.pop(), stack.pop()
                {indented}
        return stack[-1]
    """

    def right(program: str) -> int:
        stack: tuple[int, ...] = (start,)
        for sign in program.split():
            if sign not in _MACHINE:
                stack = (*stack, int(sign) + add)
            elif stack[1:]:
                stack = (*stack[:-2], _MACHINE[sign][2](*stack[-2:]))
        return stack[-1]

    rules = ", ".join(f"{sign} {_MACHINE[sign][0]}" for sign in signs)
    return TaskPlan(
        "run(program)",
        f"the top of a stack after program, whose parts are separated by spaces; the stack begins with {start}. A "
        f"number puts itself plus {add} on the stack; a sign takes the two upper numbers off and puts one back: "
        f"{rules}; with fewer than two numbers it does nothing",
        body,
        right,
        lambda draw: [
            " ".join(draw.choice((str(draw.randint(0, 9)), draw.choice(signs))) for _ in range(draw.randint(1, 9)))
        ],
        edges=[[""], [signs[0]], ["7"]],
    )


MAKERS: tuple[MakeTask, ...] = (base, shifted, runs, brackets, distance, ranking, machine)
