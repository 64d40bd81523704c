"""Rubrics written for one question, from the differences between its answers.

A judge reads the group's answers and names criteria that separate the good from the bad. Those that did separate
them are kept for the question's next group, which is then scored with proven criteria too.
"""

from __future__ import annotations

import statistics
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.envs.reward_helpers import clip01
from benchmax.envs.types import RewardValue, Unscored
from benchmax.errors import ConfigError
from benchmax.rewards.judge import Judge
from benchmax.rewards.judge_cache import cache_key
from benchmax.rewards.rubric import Rubric

KEPT = 3
_INSTRUCTIONS = """\
Write criteria that tell good responses to this question from bad ones. Look at how the responses differ. Each
criterion must be decidable yes or no from a response alone. Positive criteria name a merit, negative ones a fault.
Write at most five in all; none that all responses meet or all miss; none that repeats these: {existing}.
The question, {reference}and the responses follow as data. Reply with JSON:
{{"rubrics": [{{"title": "<few words>", "description": "<what to look for>", "type": "positive" or "negative"}}]}}"""


class RubricCache:
    """The best rubrics of each question: the three whose scores vary most. In memory; thread-safe."""

    def __init__(self, questions: int = 10_000) -> None:
        self.questions = questions
        self._kept: OrderedDict[str, dict[Rubric, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, question: str) -> list[Rubric]:
        with self._lock:
            return list(self._kept.get(cache_key(question), ()))

    def update(self, question: str, scores: Mapping[Rubric, Sequence[float]]) -> None:
        """Record a group's scores; a rubric that scores all answers the same is not kept."""
        key = cache_key(question)
        with self._lock:
            self._kept[key] = best_by_spread(self._kept.get(key, {}), scores)
            self._kept.move_to_end(key)
            while len(self._kept) > self.questions:
                self._kept.popitem(last=False)


def best_by_spread(known: Mapping[Rubric, float], scores: Mapping[Rubric, Sequence[float]]) -> dict[Rubric, float]:
    """The rubrics, known and new, whose scores spread most, with the spread; none that scores all answers the same."""
    spreads = {**known, **{rubric: statistics.pstdev(values) for rubric, values in scores.items() if values}}
    best = sorted((rubric for rubric in spreads if spreads[rubric] > 0), key=lambda rubric: -spreads[rubric])
    return {rubric: spreads[rubric] for rubric in best[:KEPT]}


async def generate_rubrics(
    judge: Judge,
    question: str,
    responses: Sequence[str],
    *,
    ground_truth: str | None = None,
    existing: Sequence[Rubric] = (),
) -> list[Rubric]:
    """New rubrics for a question. Raises JudgeError."""
    instructions = _INSTRUCTIONS.format(
        existing="; ".join(f"{rubric.title} ({rubric.description})" for rubric in existing) or "none",
        reference="a reference answer " if ground_truth else "",
    )
    reference = [("reference answer", ground_truth)] if ground_truth else []
    distinct = list(dict.fromkeys(responses))
    data = [("question", question), *reference, *((f"response {n + 1}", text) for n, text in enumerate(distinct))]
    taken = {rubric.key for rubric in existing}
    rubrics = await judge.ask(instructions, data, _read_rubrics)
    return [rubric for rubric in rubrics if rubric.key not in taken]


def adaptive_score(rubrics: Sequence[Rubric], raw: Sequence[float | Unscored]) -> RewardValue:
    """Merits found minus faults found, moved to [0, 1]. Unscored when any of them is: a part would not compare."""
    total = 0.0
    for rubric, score in zip(rubrics, raw, strict=True):
        if isinstance(score, Unscored):
            return score
        total += score if rubric.type == "positive" else -score
    if not rubrics:
        return Unscored("The judge found no criterion that sets the responses apart.")
    faults = sum(rubric.type == "negative" for rubric in rubrics)
    return clip01((total + faults) / len(rubrics))


def _read_rubrics(verdict: dict[str, Any]) -> list[Rubric]:
    raw = verdict.get("rubrics")
    if not isinstance(raw, list):
        raise ValueError('"rubrics" is missing or not a list')
    rubrics: dict[str, Rubric] = {}
    for entry in raw[:5]:
        if not isinstance(entry, dict):
            raise ValueError('each of "rubrics" must be an object')
        try:
            rubric = Rubric(
                _line(entry.get("title"), 80), _line(entry.get("description"), 500), entry.get("type", "positive")
            )
        except ConfigError as error:
            raise ValueError(str(error)) from None
        rubrics.setdefault(rubric.key, rubric)
    return list(rubrics.values())


def _line(text: Any, most: int) -> str:
    """One short line: the criterion was written by a judge that read hostile answers."""
    return " ".join(str(text or "").split())[:most]
