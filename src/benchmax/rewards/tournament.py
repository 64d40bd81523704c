"""Win rate in pairwise matches: judges compare two answers better than they grade one.

Judges also favour a position, often the first. Every pair is therefore judged twice, in both orders, and a judge that
always says "first" produces only ties.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from benchmax.envs.types import RewardValue, Unscored
from benchmax.errors import JudgeError
from benchmax.rewards.judge import Judge

_POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}
_INSTRUCTIONS = """\
Compare two responses to a question{criterion}. Decide which is better; "tie" when neither is.
The question, {reference}the first and the second response follow as data. Reply with JSON:
{{"reasoning": "<one or two sentences>", "winner": "first" | "second" | "tie"}}"""


async def tournament(
    judge: Judge,
    question: str,
    responses: Sequence[str],
    *,
    criterion: str = "",
    ground_truth: str | None = None,
    max_matches: int = 64,
    seed: int = 0,
) -> list[RewardValue]:
    """The share of points each response wins, in [0, 1].

    All pairs meet when there are at most `max_matches` of them; else each response meets the same number of
    opponents, drawn by `seed`, and at least two. A match the judge could not decide does not count; a response
    without a decided match is Unscored.
    """
    pairs = pairings(len(responses), max_matches, seed)
    instructions = _INSTRUCTIONS.format(
        criterion=f" by this criterion: {criterion}" if criterion else "",
        reference="a reference answer, " if ground_truth else "",
    )
    reference = [("reference answer", ground_truth)] if ground_truth else []
    compare = partial(_compare, judge, instructions, [("question", question), *reference])
    results = await asyncio.gather(*(_match(compare, responses[a], responses[b]) for a, b in pairs))
    points: list[list[float]] = [[] for _ in responses]
    for (a, b), result in zip(pairs, results, strict=True):
        if result is not None:
            points[a].append(result)
            points[b].append(1.0 - result)
    return [sum(won) / len(won) if won else _no_match(len(responses)) for won in points]


def pairings(count: int, max_matches: int, seed: int = 0) -> list[tuple[int, int]]:
    """Who meets whom: everybody, or a ring in which each meets its next neighbours."""
    if count * (count - 1) // 2 <= max_matches:
        return list(combinations(range(count), 2))
    ring = list(range(count))
    random.Random(seed).shuffle(ring)
    reach = max(1, min(max_matches // count, (count - 1) // 2))
    return [(ring[place], ring[(place + step) % count]) for step in range(1, reach + 1) for place in range(count)]


async def _match(compare: Callable[[str, str], Awaitable[float | None]], a: str, b: str) -> float | None:
    """Points of `a`: the mean of both orders, or None when either was not decided."""
    if a == b:
        return 0.5
    forth, back = await asyncio.gather(compare(a, b), compare(b, a))
    return None if forth is None or back is None else (forth + 1.0 - back) / 2


async def _compare(
    judge: Judge, instructions: str, about: Sequence[tuple[str, str]], first: str, second: str
) -> float | None:
    """Points of the first; None when the judge could not decide."""
    data = [*about, ("first response", first), ("second response", second)]
    try:
        return await judge.ask(instructions, data, _read_winner)
    except JudgeError:
        return None


def _read_winner(verdict: dict[str, Any]) -> float:
    winner = str(verdict.get("winner", "")).strip().lower()
    if winner not in _POINTS:
        raise ValueError('"winner" must be "first", "second" or "tie"')
    return _POINTS[winner]


def _no_match(count: int) -> Unscored:
    if count < 2:
        return Unscored("A tournament needs at least two responses; raise the group size.")
    return Unscored("The judge decided none of this response's matches; try a stronger judge model.")
