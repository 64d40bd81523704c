"""Ready-made rewards: call one inside compute_reward or compute_group_reward and return its result.

A component the judge could not decide is `Unscored(reason)`; it is never a silent 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import RewardValue, Unscored
from benchmax.errors import ConfigError, JudgeError
from benchmax.rewards.adaptive import RubricCache, adaptive_score, generate_rubrics
from benchmax.rewards.judge import Judge
from benchmax.rewards.ranking import BELOW_GROUND_TRUTH, rank_group_rubrics
from benchmax.rewards.rubric import Rubric, raw_scores, score_group_rubrics, score_rubrics, unscored
from benchmax.rubrics.evaluate import ground_truth_anchor, judge_at, question_text, reference_text

logger = logging.getLogger(__name__)

ADAPTIVE = "rubric_adaptive"
ADAPTIVE_CACHE = RubricCache()
"""The adaptive rubrics of this process, by question."""


async def single_rubric_based_reward_function(
    rollout_id: str,
    completion: Any,
    ground_truth: Any,
    rubrics: Sequence[Rubric],
    llm_judge_url: str,
    prompt: Any,
    model: str,
    api_key: str = "",
    timeout: float | None = None,
) -> dict[str, RewardValue]:
    """`{"rubric_<title>": score}` for one completion; a negative rubric scores 1 - its score."""
    judge = judge_at(llm_judge_url, model, api_key, timeout)
    return await score_rubrics(
        judge, rubrics, question_text(prompt), extract_completion_text(completion), reference_text(ground_truth)
    )


async def group_rubric_based_reward_function(
    rollout_ids: Sequence[str],
    completions: Sequence[Any],
    ground_truths: Sequence[Any],
    llm_judge_url: str,
    prompt: Any,
    model: str,
    timeout: float | None = None,
    existing_rubrics: Sequence[Rubric] | None = None,
    use_adaptive_rubrics: bool = False,
    static_rubrics: Sequence[Rubric] | None = None,
    api_key: str = "",
) -> list[dict[str, RewardValue]]:
    """Static rubrics as components of their own, and adaptive ones together as `rubric_adaptive`.

    `existing_rubrics` are adaptive rubrics you already have; with `use_adaptive_rubrics` those kept from earlier
    groups of the question and new ones are added.
    """
    _check_lengths(rollout_ids, completions, ground_truths)
    judge = judge_at(llm_judge_url, model, api_key, timeout)
    question = question_text(prompt)
    texts = [extract_completion_text(completion) for completion in completions]
    references = [reference_text(ground_truth) for ground_truth in ground_truths]
    static = score_group_rubrics(judge, static_rubrics or (), question, texts, references)
    if not use_adaptive_rubrics and not existing_rubrics:
        return await static
    adaptive = _adaptive(judge, question, texts, references, list(existing_rubrics or ()), use_adaptive_rubrics)
    rewards, extra = await asyncio.gather(static, adaptive)
    return [{**named, ADAPTIVE: score} for named, score in zip(rewards, extra, strict=True)]


async def group_rubric_ranked_reward_function(
    rollout_ids: Sequence[str],
    completions: Sequence[Any],
    ground_truths: Sequence[Any],
    llm_judge_url: str,
    prompt: Any,
    model: str,
    timeout: float | None = None,
    api_key: str = "",
    static_rubrics: Sequence[Rubric] | None = None,
    include_ground_truth: bool = True,
    below_gt_ceiling: float = BELOW_GROUND_TRUTH,
) -> list[dict[str, RewardValue]]:
    """All completions ranked by each rubric in one judge call, the group's ground truth hidden among them."""
    _check_lengths(rollout_ids, completions, ground_truths)
    references = [reference_text(ground_truth) for ground_truth in ground_truths] if include_ground_truth else []
    reference = next((text for text in references if text), None)
    return await rank_group_rubrics(
        judge_at(llm_judge_url, model, api_key, timeout),
        static_rubrics or (),
        question_text(prompt),
        [extract_completion_text(completion) for completion in completions],
        anchors=[ground_truth_anchor(reference)] if reference else (),
        below_ceiling=below_gt_ceiling,
    )


async def _adaptive(
    judge: Judge,
    question: str,
    texts: Sequence[str],
    references: Sequence[str | None],
    rubrics: list[Rubric],
    generate: bool,
) -> list[RewardValue]:
    if generate:
        known = {rubric.key for rubric in rubrics}
        rubrics += [rubric for rubric in ADAPTIVE_CACHE.get(question) if rubric.key not in known]
        try:
            reference = next((text for text in references if text), None)
            rubrics += await generate_rubrics(judge, question, texts, ground_truth=reference, existing=rubrics)
        except JudgeError as error:
            if not rubrics:
                return [unscored(error)] * len(texts)
            logger.warning("No new adaptive rubrics, so the %d known ones are used: %s", len(rubrics), error)
    rows = await asyncio.gather(
        *(raw_scores(judge, rubrics, question, *pair) for pair in zip(texts, references, strict=True))
    )
    if generate:
        columns = [[score for row in rows if not isinstance(score := row[at], Unscored)] for at in range(len(rubrics))]
        ADAPTIVE_CACHE.update(question, dict(zip(rubrics, columns, strict=True)))
    return [adaptive_score(rubrics, row) for row in rows]


def _check_lengths(rollout_ids: Sequence[str], completions: Sequence[Any], ground_truths: Sequence[Any]) -> None:
    if not len(rollout_ids) == len(completions) == len(ground_truths):
        counts = f"{len(rollout_ids)} rollout ids, {len(completions)} completions, {len(ground_truths)} ground truths"
        raise ConfigError(f"A group reward got {counts}; give one of each for every rollout.")
