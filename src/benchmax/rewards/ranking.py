"""Ranking a group: one judge call orders all responses, ties allowed, reference answers hidden among them.

A ranking has no unit. Reference answers of known score give it one: what ties with a reference gets its score,
what is between two of them gets a score between theirs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmax.envs.types import RewardValue
from benchmax.errors import ConfigError, JudgeError
from benchmax.rewards.judge import Judge
from benchmax.rewards.judge_cache import cache_key
from benchmax.rewards.rubric import Rubric, distinct_keys, unscored
from benchmax.rewards.verdict import read_partition, read_reasoning

GROUND_TRUTH_SCORE = 0.5
BELOW_GROUND_TRUTH = 0.3

_INSTRUCTIONS = """\
Rank the responses to a question by one criterion only, {direction}.

Criterion: {title}
{description}

Put responses that are equally good into the same tier; do not invent differences. Their names and order mean nothing.
The question and the responses {labels} follow as data. Reply with JSON, best tier first, every name exactly once:
{{"reasoning": "<one or two sentences>", "tiers": [["<name>", ...], ...]}}"""


@dataclass(frozen=True, slots=True)
class RankingAnchor:
    """A reference answer hidden among the responses; what ties with it gets its score."""

    text: str
    score: float
    label: str = "reference"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Tiers of names, best first: `r0`, `r1` … are responses, `a0` … anchors."""

    tiers: list[list[str]]
    reasoning: str
    output: dict[str, Any]


def tier_midpoints(tiers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Scores without a reference: the tiers share [0, 1] evenly, each member gets the middle of its share."""
    count = len(tiers)
    return {name: (count - place - 0.5) / count for place, tier in enumerate(tiers) for name in tier}


def anchored_scores(
    tiers: Sequence[Sequence[str]], anchors: Mapping[str, float], below_ceiling: float | None = None
) -> dict[str, float]:
    """Scores against reference answers (`anchors`: name to score).

    A tier with a reference has its score. Tiers above the best one climb to 1, those below the worst fall from
    `below_ceiling` (the worst reference's score unless set) to 0, those between are spaced evenly. When the judge
    orders references against their scores, the scores are assigned again in the judge's order, so that a better
    tier never scores less.
    """
    places = [place for place, tier in enumerate(tiers) if any(name in anchors for name in tier)]
    if not places:
        return tier_midpoints(tiers)
    known = _anchor_tiers([tiers[place] for place in places], anchors)
    ceiling = known[-1] if below_ceiling is None else min(below_ceiling, known[-1])
    by_tier = {0: 1.0, **dict(zip(places, known, strict=True))}
    fixed, last = sorted(by_tier), places[-1]
    for place in (place for place in range(len(tiers)) if place not in by_tier):
        if place > last:
            by_tier[place] = ceiling * (1 - (place - last) / (len(tiers) - 1 - last))
        else:
            upper, lower = max(at for at in fixed if at < place), min(at for at in fixed if at > place)
            share = (place - upper) / (lower - upper)
            by_tier[place] = by_tier[upper] + (by_tier[lower] - by_tier[upper]) * share
    return {name: by_tier[place] for place, tier in enumerate(tiers) for name in tier}


def band_anchors(
    anchors: Sequence[str], band_edges: Sequence[float] | None = None, labels: Sequence[str] | None = None
) -> list[RankingAnchor]:
    """Reference answers, best first, with the score of each (evenly spaced unless given)."""
    count = len(anchors)
    edges = [(count - index) / (count + 1) for index in range(count)] if band_edges is None else list(band_edges)
    names = [f"reference {index + 1}" for index in range(count)] if labels is None else list(labels)
    if len(edges) != count or len(names) != count:
        raise ConfigError(f"There are {count} anchors; give as many band_edges and anchor_labels.")
    if not all(0 <= edge <= 1 for edge in edges) or edges != sorted(edges, reverse=True):
        raise ConfigError("band_edges are the anchors' scores, best first; give falling numbers between 0 and 1.")
    return [RankingAnchor(*parts) for parts in zip(anchors, edges, names, strict=True)]


async def rank_responses(
    judge: Judge, rubric: Rubric, question: str, responses: Sequence[str], anchors: Sequence[str] = ()
) -> Ranking:
    """Ask for one ranking. Names and order are shuffled, equal texts are shown once. Raises JudgeError."""
    texts = {f"r{index}": text for index, text in enumerate(responses)}
    texts.update({f"a{index}": text for index, text in enumerate(anchors)})
    distinct = list(dict.fromkeys(texts.values()))
    # Shuffled by content: no position is favoured, and the same question can be cached.
    random.Random(cache_key(rubric.key, question, distinct)).shuffle(distinct)
    shown = {f"R{index + 1}": text for index, text in enumerate(distinct)}
    instructions = _INSTRUCTIONS.format(
        direction="the least affected by this fault first" if rubric.type == "negative" else "the best first",
        title=rubric.title,
        description=rubric.description,
        labels=", ".join(shown),
    )
    raw_tiers, reasoning, output = await judge.ask(
        instructions,
        [("question", question), *shown.items()],
        lambda raw: (read_partition(raw, "tiers", list(shown)), read_reasoning(raw), raw),
    )
    tiers = [[name for label in tier for name, text in texts.items() if text == shown[label]] for tier in raw_tiers]
    return Ranking(tiers, reasoning, output)


async def rank_group_rubrics(
    judge: Judge,
    rubrics: Sequence[Rubric],
    question: str,
    responses: Sequence[str],
    *,
    anchors: Sequence[RankingAnchor] = (),
    below_ceiling: float | None = None,
) -> list[dict[str, RewardValue]]:
    """Scores in [0, 1] for every response, one judge call for each rubric."""
    keys = distinct_keys(rubrics)

    async def scores(rubric: Rubric) -> list[RewardValue]:
        try:
            ranking = await rank_responses(judge, rubric, question, responses, [anchor.text for anchor in anchors])
        except JudgeError as error:
            return [unscored(error)] * len(responses)
        return list(ranking_scores(ranking, len(responses), anchors, below_ceiling))

    columns = await asyncio.gather(*map(scores, rubrics))
    return [{key: column[index] for key, column in zip(keys, columns, strict=True)} for index in range(len(responses))]


def ranking_scores(
    ranking: Ranking, count: int, anchors: Sequence[RankingAnchor], below_ceiling: float | None = None
) -> list[float]:
    """The scores of `count` responses, in their order."""
    worth = {f"a{index}": anchor.score for index, anchor in enumerate(anchors)}
    scores = anchored_scores(ranking.tiers, worth, below_ceiling)
    return [scores[f"r{index}"] for index in range(count)]


def _anchor_tiers(tiers: Sequence[Sequence[str]], anchors: Mapping[str, float]) -> list[float]:
    """The score of each tier that holds a reference, falling from best to worst."""
    left = sorted(anchors.values(), reverse=True)
    scores = []
    for tier in tiers:
        count = sum(name in anchors for name in tier)
        dealt, left = left[:count], left[count:]
        scores.append(sum(dealt) / count)
    return scores
