"""Numbers and lists of numbers: primes, coins, windows, pairs, simulations."""

from __future__ import annotations

import itertools
import random

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.task import MakeTask, TaskPlan


def primes(draw: random.Random) -> TaskPlan:
    modulus = draw.randint(3, 12)
    remainder = draw.choice([r for r in range(modulus) if r in (1, modulus - 1) or r % 2])
    body = f"""
        count = 0
        for n in range(max(2, low), high + 1):
            if n % {modulus} == {remainder} and all(n % d for d in range(2, int(n ** 0.5) + 1)):
                count += 1
        return count
    """
    return TaskPlan(
        "count_primes(low, high)",
        f"how many primes from low to high, both included, leave the remainder {remainder} when divided by {modulus}",
        body,
        lambda low, high: sum(n % modulus == remainder for n in _sieve(high) if n >= low),
        lambda draw: sorted((draw.randint(0, 150), draw.randint(100, 400))),
        edges=[[0, 1], [2, 2], [50, 40]],
    )


def _sieve(high: int) -> list[int]:
    composite = {k * n for n in range(2, int(max(0, high) ** 0.5) + 1) for k in range(2, high // n + 1)}
    return [n for n in range(2, high + 1) if n not in composite]


def coins(draw: random.Random) -> TaskPlan:
    kinds = sorted(draw.sample(range(2, 25), draw.randint(3, 4)))
    body = f"""
        fewest = [0] + [None] * max(0, amount)
        for total in range(1, amount + 1):
            options = [fewest[total - c] for c in {kinds} if c <= total and fewest[total - c] is not None]
            fewest[total] = min(options) + 1 if options else None
        return -1 if amount < 0 or fewest[amount] is None else fewest[amount]
    """

    def right(amount: int) -> int:
        reached, steps = {0}, 0
        while amount not in reached and steps <= amount:
            reached, steps = {total + kind for total in reached for kind in kinds if total + kind <= amount}, steps + 1
        return steps if amount in reached else -1

    return TaskPlan(
        "fewest_coins(amount)",
        f"the least number of coins worth {', '.join(map(str, kinds))} that make up amount, each as often as you like, "
        "or -1 if it cannot be done",
        body,
        right,
        lambda draw: [draw.randint(1, 90)],
        edges=[[0], [1], [kinds[0]]],
    )


def chain(draw: random.Random) -> TaskPlan:
    divisor, factor, add = draw.randint(2, 4), draw.randint(2, 5), draw.randint(1, 7)
    most = draw.choice((30, 50, 80))
    body = f"""
        steps = 0
        while n > 1 and steps < {most}:
            n = n // {divisor} if n % {divisor} == 0 else n * {factor} + {add}
            steps += 1
        return steps
    """

    def right(n: int) -> int:
        seen = [n]
        while seen[-1] > 1 and len(seen) <= most:
            last = seen[-1]
            seen.append(last * factor + add if last % divisor else last // divisor)
        return len(seen) - 1

    return TaskPlan(
        "chain_length(n)",
        f"the number of steps until n is at most 1, at most {most} of them: n divisible by {divisor} is divided by "
        f"{divisor}, any other n becomes n times {factor} plus {add}",
        body,
        right,
        lambda draw: [draw.choice((draw.randint(2, 200), divisor ** draw.randint(1, 7)))],
        edges=[[1], [0], [divisor]],
    )


def windows(draw: random.Random) -> TaskPlan:
    size, least = draw.randint(2, 4), draw.randint(5, 50)
    body = f"""
        count = 0
        for start in range(len(numbers) - {size} + 1):
            if sum(numbers[start:start + {size}]) > {least}:
                count += 1
        return count
    """
    return TaskPlan(
        "count_windows(numbers)",
        f"how many runs of {size} neighbours in numbers have a sum greater than {least}",
        body,
        lambda a: sum(sum(run) > least for run in zip(*(a[n:] for n in range(size)), strict=False)),
        lambda draw: [[draw.randint(0, 25) for _ in range(draw.randint(2, 14))]],
        edges=[[[]], [[least + 1] * (size - 1)]],
    )


def pairs(draw: random.Random) -> TaskPlan:
    modulus = draw.randint(3, 12)
    remainder = draw.randint(0, modulus - 1)
    body = f"""
        seen, count = {{}}, 0
        for x in numbers:
            count += seen.get(({remainder} - x) % {modulus}, 0)
            seen[x % {modulus}] = seen.get(x % {modulus}, 0) + 1
        return count
    """
    return TaskPlan(
        "count_pairs(numbers)",
        f"the number of pairs of items of numbers at different places whose sum leaves the remainder {remainder} when "
        f"divided by {modulus}",
        body,
        lambda a: sum((x + y) % modulus == remainder for x, y in itertools.combinations(a, 2)),
        lambda draw: [[draw.randint(0, 60) for _ in range(draw.randint(2, 14))]],
        edges=[[[]], [[remainder]]],
    )


def increasing(draw: random.Random) -> TaskPlan:
    gap = draw.randint(1, 15)
    body = f"""
        best = []
        for n, x in enumerate(numbers):
            before = [best[m] for m in range(n) if 0 < x - numbers[m] <= {gap}]
            best.append(1 + max(before, default=0))
        return max(best, default=0)
    """

    def right(numbers: list[int]) -> int:
        ends: list[list[int]] = []
        for x in numbers:
            ends.extend([[*each, x] for each in list(ends) if 0 < x - each[-1] <= gap])
            ends.append([x])
        return max(map(len, ends), default=0)

    return TaskPlan(
        "longest_climb(numbers)",
        "the length of the longest sequence of items of numbers, in their order but not necessarily neighbours, in "
        f"which each is greater than the one before by at most {gap}",
        body,
        right,
        lambda draw: [[draw.randint(0, 40) for _ in range(draw.randint(1, 11))]],
        edges=[[[]], [list(range(0, 6 * gap, gap))], [[5, 5, 5]]],
    )


def intervals(draw: random.Random) -> TaskPlan:
    gap = draw.randint(1, 12)
    body = f"""
        merged = []
        for start, end in sorted(spans):
            if merged and start - merged[-1][1] <= {gap}:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        return merged
    """

    def right(spans: list[list[int]]) -> list[list[int]]:
        left = [list(span) for span in spans]
        while True:
            near = ((a, b) for a, b in itertools.combinations(left, 2) if max(a[0], b[0]) - min(a[1], b[1]) <= gap)
            if (found := next(near, None)) is None:
                return sorted(left)
            a, b = found
            left = [span for span in left if span is not a and span is not b]
            left.append([min(a[0], b[0]), max(a[1], b[1])])

    return TaskPlan(
        "merge(spans)",
        f"the spans [start, end] in ascending order, those merged into one that overlap or are at most {gap} apart",
        body,
        right,
        lambda draw: [[[start := draw.randint(0, 80), start + draw.randint(0, 15)] for _ in range(draw.randint(1, 7))]],
        edges=[[[]], [[[0, 5], [5 + gap, 9 + gap]]], [[[0, 5], [6 + gap, 9 + gap]]], [[[0, 90], [3, 4]]]],
    )


def circle(draw: random.Random) -> TaskPlan:
    step, start = draw.randint(2, 9), draw.randint(1, 6)
    body = f"""
        people, place = list(range(1, n + 1)), {start} - 1
        while len(people) > 1:
            place = (place + {step} - 1) % len(people)
            people.pop(place)
        return people[0]
    """

    def right(n: int) -> int:
        people = list(range(1, n + 1))
        people = people[(start - 1) % n :] + people[: (start - 1) % n]
        while len(people) > 1:
            turns = (step - 1) % len(people)
            people = people[turns + 1 :] + people[:turns]
        return people[0]

    return TaskPlan(
        "last_one(n)",
        f"who is left of people 1 to n in a circle: counting begins with 1 at person {start} (counted around if n is "
        f"less) and goes on around, and whoever is counted {step} leaves, whereupon the count begins anew "
        "with the next",
        body,
        right,
        lambda draw: [draw.randint(1, 60)],
        edges=[[1], [2]],
    )


def knapsack(draw: random.Random) -> TaskPlan:
    times = draw.randint(1, 3)
    extra = draw.randint(0, 6)
    body = f"""
        best = [0] * (capacity + 1)
        for weight, value in things:
            for _ in range({times}):
                for room in range(capacity, weight - 1, -1):
                    best[room] = max(best[room], best[room - weight] + value + {extra})
        return best[capacity]
    """

    def right(things: list[list[int]], capacity: int) -> int:
        counts = itertools.product(range(times + 1), repeat=len(things))
        taken = ([(n, weight, value) for n, (weight, value) in zip(each, things, strict=True)] for each in counts)
        fits = (each for each in taken if sum(n * weight for n, weight, _ in each) <= capacity)
        return max(sum(n * (value + extra) for n, _, value in each) for each in fits)

    plus = f" plus {extra}" if extra else ""
    return TaskPlan(
        "best_load(things, capacity)",
        "the greatest total that a load can have: things is a list of [weight, value], each may be taken up to "
        f"{times} times, the weights may not exceed capacity, and each one taken counts its value{plus}",
        body,
        right,
        lambda draw: [
            [[draw.randint(1, 12), draw.randint(1, 30)] for _ in range(draw.randint(1, 4))],
            draw.randint(1, 30),
        ],
        edges=[[[], 10], [[[5, 5]], 4]],
    )


def digits(draw: random.Random) -> TaskPlan:
    power, below = draw.randint(1, 3), draw.randint(10, 60)
    most = draw.randint(6, 12)
    body = f"""
        steps = 0
        while n >= {below} and steps < {most}:
            n = sum(int(c) ** {power} for c in str(n))
            steps += 1
        return [n, steps]
    """

    def right(n: int, steps: int = 0) -> list[int]:
        if n < below or steps == most:
            return [n, steps]
        total, rest = 0, n
        while rest:
            total, rest = total + (rest % 10) ** power, rest // 10
        return right(total, steps + 1)

    what = {1: "digits", 2: "squares of its digits", 3: "cubes of its digits"}[power]
    return TaskPlan(
        "shrink(n)",
        f"a list of two numbers: what n becomes when it is replaced by the sum of its {what} until it is below "
        f"{below}, but at most {most} times, and how often that was",
        body,
        right,
        lambda draw: [draw.choice((draw.randint(0, 99), draw.randint(100, 99_999)))],
        edges=[[0], [below], [below - 1]],
    )


def rotated(draw: random.Random) -> TaskPlan:
    size, by = draw.randint(2, 5), draw.randint(1, 4)
    body = f"""
        result = []
        for start in range(0, len(items), {size}):
            part = items[start:start + {size}]
            shift = {by} % len(part)
            result += part[shift:] + part[:shift]
        return result
    """

    def right(items: list[int]) -> list[int]:
        result = list(items)
        for place in range(len(items)):
            start = place - place % size
            length = min(size, len(items) - start)
            result[start + (place - start - by) % length] = items[place]
        return result

    return TaskPlan(
        "rotate_parts(items)",
        f"items cut into parts of {size}, the last perhaps shorter, each part turned to the left by {by}, all "
        "in one list",
        body,
        right,
        lambda draw: [[draw.randint(0, 30) for _ in range(draw.randint(1, 12))]],
        edges=[[[]], [[7]]],
    )


def median(draw: random.Random) -> TaskPlan:
    size = draw.choice((3, 5, 7))
    add = draw.randint(0, 9)
    body = f"""
        result = []
        for n in range(len(numbers)):
            part = sorted(numbers[max(0, n - {size // 2}):n + {size // 2 + 1}])
            result.append(part[len(part) // 2] + {add})
        return result
    """

    def right(numbers: list[int]) -> list[int]:
        near = [[x for m, x in enumerate(numbers) if abs(m - n) <= size // 2] for n in range(len(numbers))]
        return [
            next(x for x in part if _rank(x, part) <= len(part) // 2 < _rank(x, part) + part.count(x)) + add
            for part in near
        ]

    return TaskPlan(
        "smooth(numbers)",
        f"numbers with each item replaced by the median of it and its up to {size // 2} neighbours on both sides"
        + (f", plus {add}" if add else "")
        + "; of an even count the larger one in the middle",
        body,
        right,
        lambda draw: [inputs.numbers(draw)],
        edges=[[[]], [[5]], [[9, 1]]],
    )


def _rank(x: int, part: list[int]) -> int:
    return sum(y < x for y in part)


MAKERS: tuple[MakeTask, ...] = (
    primes, coins, chain, windows, pairs, increasing, intervals, circle, knapsack, digits, rotated, median,
)  # fmt: skip
