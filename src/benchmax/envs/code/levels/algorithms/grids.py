"""Grids and graphs: areas, paths, generations, ways through a network."""

from __future__ import annotations

import itertools
import random
from typing import Any

from benchmax.envs.code.levels import inputs
from benchmax.envs.code.levels.task import MakeTask, TaskPlan

_SIDES = [(0, 1), (1, 0), (0, -1), (-1, 0)]
_CORNERS = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


def islands(draw: random.Random) -> TaskPlan:
    land, corners, least = draw.choice("#X@o"), draw.random() < 0.5, draw.randint(1, 3)
    around = _SIDES + _CORNERS if corners else _SIDES
    body = f"""
        left = {{(r, c) for r, row in enumerate(rows) for c, sign in enumerate(row) if sign == {land!r}}}
        count = 0
        while left:
            waiting, size = [left.pop()], 0
            while waiting:
                r, c = waiting.pop()
                size += 1
                for dr, dc in {around!r}:
                    if (r + dr, c + dc) in left:
                        left.remove((r + dr, c + dc))
                        waiting.append((r + dr, c + dc))
            if size >= {least}:
                count += 1
        return count
    """

    def right(rows: list[str]) -> int:
        names = {
            (r, c): n
            for n, (r, c) in enumerate(itertools.product(range(len(rows)), range(9)))
            if rows[r][c : c + 1] == land
        }
        for _ in names:
            names = {
                (r, c): min([n, *(names[r + dr, c + dc] for dr, dc in around if (r + dr, c + dc) in names)])
                for (r, c), n in names.items()
            }
        return sum(list(names.values()).count(n) >= least for n in set(names.values()))

    joined = "side by side, one above the other or at corners" if corners else "side by side or one above the other"
    size = f" of at least {least}" if least > 1 else ""
    return TaskPlan(
        "count_areas(rows)",
        f"the number of areas{size} of {land!r} in rows, a list of texts of equal length; signs belong to one area "
        f"when they are {joined}",
        body,
        right,
        lambda draw: [["".join(row) for row in inputs.grid(draw, land + land + "..")]],
        edges=[[[]], [[land]], [[land + ".", "." + land]], [[land * 3, land + ".."]]],
    )


def paths(draw: random.Random) -> TaskPlan:
    wall, diagonal = draw.choice("#X@o"), draw.random() < 0.5
    modulus = draw.choice((0, 0, 7, 10, 13, 100))
    moves = [(1, 0), (0, 1), *([(1, 1)] if diagonal else [])]
    body = f"""
        ways = {{}}
        for r, row in enumerate(rows):
            for c, sign in enumerate(row):
                before = sum(ways.get((r - dr, c - dc), 0) for dr, dc in {moves!r})
                ways[r, c] = 0 if sign == {wall!r} else 1 if r == c == 0 else before
        return ways.get((len(rows) - 1, len(rows[-1]) - 1), 0){f" % {modulus}" if modulus else ""}
    """

    def right(rows: list[str]) -> int:
        def count(r: int, c: int) -> int:
            if r >= len(rows) or c >= len(rows[0]) or rows[r][c] == wall:
                return 0
            if (r, c) == (len(rows) - 1, len(rows[0]) - 1):
                return 1
            return sum(count(r + dr, c + dc) for dr, dc in moves)

        return count(0, 0) % modulus if modulus else count(0, 0)

    by = "right, down or diagonally right and down" if diagonal else "right or down"
    rest = f", modulo {modulus}" if modulus else ""
    return TaskPlan(
        "count_ways(rows)",
        "the number of ways from the upper left to the lower right of rows, a list of texts of equal length, going "
        f"one step {by} each time and never onto {wall!r}{rest}",
        body,
        right,
        lambda draw: [["".join(row) for row in inputs.grid(draw, wall + "......")]],
        edges=[[["."]], [[wall]], [["..", "." + wall]], [["....", "....", "...."]]],
    )


def generation(draw: random.Random) -> TaskPlan:
    born = sorted(draw.sample(range(1, 6), draw.randint(1, 2)))
    stay = sorted(draw.sample(range(6), draw.randint(2, 3)))
    body = f"""
        alive = {{(r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell}}
        def near(r, c):
            return sum((r + dr, c + dc) in alive for dr in (-1, 0, 1) for dc in (-1, 0, 1) if dr or dc)
        return [[int(near(r, c) in ({stay!r} if cell else {born!r})) for c, cell in enumerate(row)]
                for r, row in enumerate(grid)]
    """

    def right(grid: list[list[int]]) -> list[list[int]]:
        def neighbours(r: int, c: int) -> int:
            rows = grid[max(0, r - 1) : r + 2]
            return sum(sum(row[max(0, c - 1) : c + 2]) for row in rows) - grid[r][c]

        rule = {(0, n) for n in born} | {(1, n) for n in stay}
        return [[int((cell, neighbours(r, c)) in rule) for c, cell in enumerate(row)] for r, row in enumerate(grid)]

    return TaskPlan(
        "next_grid(grid)",
        "the next generation of grid, a list of lists of 0 and 1, in which each cell has up to eight neighbours: a 0 "
        f"with {_or(born)} neighbours that are 1 becomes 1, a 1 with {_or(stay)} such neighbours stays 1, all others "
        "become 0",
        body,
        right,
        lambda draw: [inputs.grid(draw, range(2))],
        edges=[[[]], [[[1]]], [[[0]]]],
    )


def _or(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def spiral(draw: random.Random) -> TaskPlan:
    every, down = draw.randint(1, 5), draw.random() < 0.5
    turned = "[list(row) for row in zip(*grid)]" if down else "grid"
    body = f"""
        left, result = {turned}, []
        while left:
            result += left[0]
            left = [list(row) for row in zip(*left[1:])][::-1]
        return result[::{every}]
    """

    def right(grid: list[list[int]]) -> list[int]:
        cells = {(r, c): value for r, row in enumerate(grid) for c, value in enumerate(row)}
        (r, c), (dr, dc), result = (0, 0), (1, 0) if down else (0, 1), []
        while cells:
            result.append(cells.pop((r, c)))
            if (r + dr, c + dc) not in cells:
                dr, dc = (-dc, dr) if down else (dc, -dr)
            r, c = r + dr, c + dc
        return result[::every]

    ordinal = {2: "2nd", 3: "3rd"}.get(every, f"{every}th")
    which = "all numbers" if every == 1 else f"the first and then every {ordinal} number"
    way = "first down, then right, up and left" if down else "first right, then down, left and up"
    return TaskPlan(
        "unroll(grid)",
        f"{which} of grid, a list of lists of equal length, read along a spiral that begins at the upper left and goes "
        f"{way}, and so on inwards",
        body,
        right,
        lambda draw: [inputs.grid(draw, range(10, 99))],
        edges=[[[[5]]], [[[1, 2, 3]]], [[[1], [2], [3]]]],
    )


def reachable(draw: random.Random) -> TaskPlan:
    steps, back = draw.randint(1, 4), draw.random() < 0.5
    extra = draw.randint(0, 9)
    both = " + [(b, a) for a, b in links]" if back else ""
    body = f"""
        found, ways = {{start}}, [(a, b) for a, b in links]{both}
        for _ in range({steps}):
            found |= {{b for a, b in ways if a in found}}
        return len(found) + {extra}
    """

    def right(links: list[list[int]], start: int) -> int:
        def near(at: int) -> set[int]:
            return {b for a, b in links if a == at} | ({a for a, b in links if b == at} if back else set())

        far: dict[int, int] = {start: 0}
        waiting = [start]
        for at in waiting:
            for other in sorted(near(at) - far.keys()):
                far[other] = far[at] + 1
                waiting.append(other)
        return sum(distance <= steps for distance in far.values()) + extra

    way = "in both directions" if back else "only from the first to the second"
    plus = f", plus {extra}" if extra else ""
    return TaskPlan(
        "reach(links, start)",
        f"the number of places, start included, that can be reached from start over at most {steps} links{plus}; "
        f"links is a list of pairs of places, and a link can be used {way}",
        body,
        right,
        lambda draw: [[draw.sample(range(1, 8), 2) for _ in range(draw.randint(1, 10))], draw.randint(1, 7)],
        edges=[[[], 1], [[[n, n + 1] for n in range(1, 7)], 1], [[[n + 1, n] for n in range(1, 7)], 1]],
    )


def order(draw: random.Random) -> TaskPlan:
    last = draw.random() < 0.5
    count = draw.randint(3, 6)
    names = draw.sample(inputs.WORDS, count)
    pick = "max" if last else "min"
    body = f"""
        left, result = {names!r}, []
        while left:
            free = [x for x in left if not any(b == x and a in left for a, b in rules)]
            if not free:
                return []
            result.append({pick}(free))
            left = [x for x in left if x != result[-1]]
        return result
    """

    def right(rules: list[list[str]]) -> list[str]:
        orders = sorted((list(each) for each in itertools.permutations(names)), reverse=last)
        allowed = (each for each in orders if all(a != b and each.index(a) < each.index(b) for a, b in rules))
        return next(allowed, [])

    which = "last" if last else "first"
    return TaskPlan(
        "arrange(rules)",
        f"the names {', '.join(map(repr, names))} in an order that keeps all rules, each a list [a, b] that says a "
        f"comes before b; whenever several could be next, the alphabetically {which} of them is; [] if there is no "
        "such order",
        body,
        right,
        lambda draw: [_rules(draw, names)],
        edges=[[[]], [[names[:2], names[1::-1]]]],
    )


def _rules(draw: random.Random, names: list[str]) -> list[list[str]]:
    ordered = draw.sample(names, len(names))
    chosen: list[Any] = [sorted(draw.sample(ordered, 2), key=ordered.index) for _ in range(draw.randint(0, 5))]
    if draw.random() < 0.15 and chosen:
        chosen.append(chosen[0][::-1])
    return chosen


MAKERS: tuple[MakeTask, ...] = (islands, paths, generation, spiral, reachable, order)
