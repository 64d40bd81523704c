"""Inputs that distinguish the right answer of a task from answers that are nearly right.

A wrong answer is computed like the right one: by a rival, such as `at least` for `more than`, or by the right answer
itself from a workbook in which one row of the inputs is blank, as a range that ends too soon would have it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from benchmax.envs.excel.workbooks.ranges import parse_area
from benchmax.envs.excel.workbooks.values import number_of

Sheets: TypeAlias = dict[str, dict[str, Any]]
Inputs: TypeAlias = Callable[[random.Random], Sheets]
Answer: TypeAlias = Callable[[Sheets], Sheets]
_ROUND = 8
"""Inputs drawn for each that is taken."""
_VAIN_ROUNDS = 8
"""Rounds without success, after which the remaining wrong answers are taken to be right."""
_CLOSE = 1e-4


def telling_inputs(
    draw: random.Random, inputs: Inputs, answer: Answer, rivals: Sequence[Answer], known: Sequence[Sheets]
) -> list[Sheets]:
    """A few inputs that, together with the known ones, expose every wrong answer."""
    left: list[Answer] = [*rivals, *(partial(_without, answer, *row) for row in _varying_rows(known))]
    for each in known:
        left = _undetected(each, answer, left)
    found: list[Sheets] = []
    vain = 0
    while left and vain < _VAIN_ROUNDS:
        tried = [inputs(draw) for _ in range(_ROUND)]  # those are taken that leave the fewest wrong answers
        rest, best = min(((_undetected(each, answer, left), each) for each in tried), key=lambda pair: len(pair[0]))
        vain = vain + 1 if len(rest) == len(left) else 0
        if vain == 0:
            found.append(best)
            left = rest
    return found


def _undetected(sheets: Sheets, answer: Answer, wrong: Sequence[Answer]) -> list[Answer]:
    """Wrong answers that are right for these inputs."""
    right = answer(sheets)
    return [each for each in wrong if _same(each, sheets, right)]


def _same(wrong: Answer, sheets: Sheets, right: Sheets) -> bool:
    try:
        found = wrong(sheets)
    except (ArithmeticError, KeyError, StopIteration, TypeError, ValueError):
        return False  # an error in the cell
    return all(_close(found[sheet].get(name), value) for sheet, cells in right.items() for name, value in cells.items())


def _close(found: Any, right: Any) -> bool:
    if found == right:
        return True
    one, other = number_of(found), number_of(right)
    return one is not None and other is not None and math.isclose(one, other, rel_tol=_CLOSE)


def _without(answer: Answer, sheet: str, names: Sequence[str], sheets: Sheets) -> Sheets:
    """The answer when these cells are blank."""
    rest = dict(sheets[sheet])
    for name in names:
        rest.pop(name, None)
    return answer({**sheets, sheet: rest})


def _varying_rows(known: Sequence[Sheets]) -> list[tuple[str, list[str]]]:
    """Sheets and the cells of their rows that are not the same in all inputs."""
    found = []
    for sheet in known[0]:
        rows: dict[int, list[str]] = {}
        for name in {name: None for each in known for name in each[sheet]}:
            rows.setdefault(parse_area(name).top, []).append(name)
        found += [(sheet, names) for names in rows.values() if _varies(known, sheet, names)]
    return found


def _varies(known: Sequence[Sheets], sheet: str, names: Sequence[str]) -> bool:
    return any(each[sheet].get(name) != known[0][sheet].get(name) for each in known for name in names)
