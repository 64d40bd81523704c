"""Rubrics: one criterion each, judged separately, so that a score says what it is about."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmax import limits
from benchmax.envs.types import RewardValue, Unscored
from benchmax.errors import ConfigError, JudgeError, describe_error
from benchmax.rewards.judge import Judge
from benchmax.rewards.verdict import read_reasoning, read_score

BINARY = {0.0: "the criterion is not met", 1.0: "the criterion is met"}

_INSTRUCTIONS = """\
Judge the response by one criterion only.

Criterion: {title}
{description}

Give one of these scores for how far the response fits the description of the criterion:
{scale}

The question, {reference}and the response follow as data. Reply with JSON:
{{"reasoning": "<one or two sentences>", "score": <one of the scores>}}"""


@dataclass(frozen=True, eq=True)
class Rubric:
    """A criterion. A negative one describes a fault: an answer that has it loses the score.

    `score_map` holds the allowed scores with their meaning; without one the criterion is met (1) or not (0).
    """

    title: str
    description: str
    type: Literal["positive", "negative"] = "positive"
    score_map: Mapping[float, str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.title, str) or not re.search(r"\w", self.title):
            raise ConfigError("A rubric needs a title with a letter or digit in it.")
        if not isinstance(self.description, str) or not self.description.strip():
            raise ConfigError(f"Rubric {self.title!r} needs a description: say what the judge should look for.")
        if self.type not in ("positive", "negative"):
            raise ConfigError(f"Rubric {self.title!r} has type {self.type!r}; use 'positive' or 'negative'.")
        if self.score_map is not None:
            object.__setattr__(self, "score_map", _score_map(self))

    def __hash__(self) -> int:
        return hash((self.title, self.description, self.type))

    @property
    def key(self) -> str:
        """The name of the reward component."""
        snake = re.sub(r"\W+", "_", self.title.casefold()).strip("_")
        return f"rubric_{snake}"[: limits.REWARD_NAME_CHARS]

    @property
    def scale(self) -> Mapping[float, str]:
        return self.score_map or BINARY

    def directed(self, score: float) -> float:
        """The judge's score as a reward: for a negative rubric, 1 minus the score."""
        return 1.0 - score if self.type == "negative" else score


@dataclass(frozen=True, slots=True)
class RubricVerdict:
    """A judge's raw score on one rubric, before `directed`."""

    score: float
    reasoning: str
    output: dict[str, Any]


async def judge_rubric(
    judge: Judge, rubric: Rubric, question: str, response: str, ground_truth: str | None = None
) -> RubricVerdict:
    """One verdict. Raises JudgeError when there is none."""
    scale = "\n".join(f"- {score:g}: {meaning}" for score, meaning in sorted(rubric.scale.items()))
    reference = "a reference answer " if ground_truth else ""
    instructions = _INSTRUCTIONS.format(
        title=rubric.title, description=rubric.description, scale=scale, reference=reference
    )
    data = [("question", question), ("response", response)]
    if ground_truth:
        data.insert(1, ("reference answer", ground_truth))
    return await judge.ask(
        instructions, data, lambda raw: RubricVerdict(read_score(raw, rubric.scale), read_reasoning(raw), raw)
    )


async def score_rubrics(
    judge: Judge, rubrics: Sequence[Rubric], question: str, response: str, ground_truth: str | None = None
) -> dict[str, RewardValue]:
    """A component for each rubric; one the judge could not decide is Unscored."""
    keys = distinct_keys(rubrics)
    scores = await raw_scores(judge, rubrics, question, response, ground_truth)
    return {
        key: raw if isinstance(raw, Unscored) else rubric.directed(raw)
        for key, rubric, raw in zip(keys, rubrics, scores, strict=True)
    }


async def raw_scores(
    judge: Judge, rubrics: Sequence[Rubric], question: str, response: str, ground_truth: str | None
) -> list[RewardValue]:
    """The judge's score for each rubric, before `directed`; Unscored where it could not decide."""

    async def score(rubric: Rubric) -> RewardValue:
        try:
            return (await judge_rubric(judge, rubric, question, response, ground_truth)).score
        except JudgeError as error:
            return unscored(error)

    return await asyncio.gather(*map(score, rubrics))


async def score_group_rubrics(
    judge: Judge,
    rubrics: Sequence[Rubric],
    question: str,
    responses: Sequence[str],
    ground_truths: Sequence[str | None] | str | None = None,
) -> list[dict[str, RewardValue]]:
    """`score_rubrics` for each response, all at once."""
    if ground_truths is None or isinstance(ground_truths, str):
        ground_truths = [ground_truths] * len(responses)
    return await asyncio.gather(
        *(
            score_rubrics(judge, rubrics, question, response, ground_truth)
            for response, ground_truth in zip(responses, ground_truths, strict=True)
        )
    )


def distinct_keys(rubrics: Sequence[Rubric]) -> list[str]:
    """The rubrics' component names; two rubrics may not share one."""
    keys = [rubric.key for rubric in rubrics]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"Two rubrics would both be called {key!r}; give each a title of its own.")
    return keys


def unscored(error: JudgeError) -> Unscored:
    return Unscored(describe_error(error))


def _score_map(rubric: Rubric) -> dict[float, str]:
    try:
        scores = {float(score): str(meaning) for score, meaning in (rubric.score_map or {}).items()}
    except (TypeError, ValueError, AttributeError):
        raise ConfigError(f"Rubric {rubric.title!r}: score_map must be a dict of number to meaning.") from None
    if len(scores) < 2 or not all(math.isfinite(score) for score in scores):
        raise ConfigError(f"Rubric {rubric.title!r}: score_map needs at least two finite scores.")
    if rubric.type == "negative" and not all(0 <= score <= 1 for score in scores):
        raise ConfigError(f"Rubric {rubric.title!r} is negative, so its reward is 1 - score; keep scores in [0, 1].")
    return scores
