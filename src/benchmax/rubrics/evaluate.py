"""One judge question at a time. When the judge fails, the score is None with an "error", never 0."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from benchmax import config
from benchmax.envs.reward_helpers import extract_completion_text, last_user_text
from benchmax.errors import ConfigError, JudgeError, describe_error
from benchmax.rewards.adaptive import generate_rubrics
from benchmax.rewards.judge import Judge
from benchmax.rewards.ranking import (
    BELOW_GROUND_TRUTH,
    GROUND_TRUTH_SCORE,
    RankingAnchor,
    band_anchors,
    rank_responses,
    ranking_scores,
)
from benchmax.rewards.rubric import Rubric, judge_rubric

logger = logging.getLogger(__name__)

JUDGE_SECONDS = 60.0


async def evaluate_single_rubric(
    rubric: Rubric,
    question: Any,
    response: Any,
    model_name: str,
    base_url: str,
    ground_truth: Any = None,
    api_key: str = "",
    timeout: float | None = None,
    enable_logging: bool = True,
) -> dict[str, Any]:
    """`{"score", "reasoning", "llm_output"}`: the judge's own score, also for a negative rubric."""
    judge = judge_at(base_url, model_name, api_key, timeout)
    try:
        verdict = await judge_rubric(
            judge, rubric, question_text(question), extract_completion_text(response), reference_text(ground_truth)
        )
    except JudgeError as error:
        if enable_logging:
            logger.warning("Rubric %r is unscored: %s", rubric.title, error)
        return {"score": None, "reasoning": "", "llm_output": "", "error": describe_error(error)}
    if enable_logging:
        logger.info("Rubric %r: %g. %s", rubric.title, verdict.score, verdict.reasoning)
    return {"score": verdict.score, "reasoning": verdict.reasoning, "llm_output": json.dumps(verdict.output)}


async def evaluate_rubric_ranking(
    rubric: Rubric,
    question: Any,
    responses: Sequence[Any],
    model_name: str,
    base_url: str,
    ground_truth: Any = None,
    api_key: str = "",
    timeout: float | None = None,
    enable_logging: bool = True,
    *,
    below_gt_ceiling: float = BELOW_GROUND_TRUTH,
    anchors: Sequence[str] | None = None,
    band_edges: Sequence[float] | None = None,
    anchor_labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """`{"scores", "tiers", "reasoning", "llm_output"}`, the scores in the order of the responses.

    Give a ground truth, or `anchors` (reference answers, best first) with their scores in `band_edges` and names
    in `anchor_labels`, to be hidden among the responses.
    """
    reference = reference_text(ground_truth)
    if anchors and reference:
        raise ConfigError("Give a ground_truth or anchors, not both; a ground truth can be one of the anchors.")
    references = [ground_truth_anchor(reference)] if reference else []
    if anchors:
        references = band_anchors(anchors, band_edges, anchor_labels)
    judge = judge_at(base_url, model_name, api_key, timeout)
    texts = [extract_completion_text(response) for response in responses]
    try:
        ranking = await rank_responses(
            judge, rubric, question_text(question), texts, [each.text for each in references]
        )
    except JudgeError as error:
        if enable_logging:
            logger.warning("The ranking by %r is unscored: %s", rubric.title, error)
        nothing: list[float | None] = [None] * len(texts)
        return {"scores": nothing, "tiers": [], "reasoning": "", "llm_output": "", "error": describe_error(error)}
    names = {f"a{index}": each.label for index, each in enumerate(references)}
    return {
        "scores": ranking_scores(ranking, len(texts), references, below_gt_ceiling if reference else None),
        "tiers": [[names[name] if name in names else int(name[1:]) for name in tier] for tier in ranking.tiers],
        "reasoning": ranking.reasoning,
        "llm_output": json.dumps(ranking.output),
    }


async def generate_instance_wise_adaptive_rubrics(
    question: Any,
    responses: Sequence[Any],
    model_name: str,
    base_url: str,
    existing_rubrics: Sequence[Rubric] | None = None,
    ground_truth: Any = None,
    api_key: str = "",
    timeout: float | None = None,
) -> list[Rubric]:
    """Rubrics that distinguish these responses. Raises JudgeError when the judge returns none that can be used."""
    return await generate_rubrics(
        judge_at(base_url, model_name, api_key, timeout),
        question_text(question),
        [extract_completion_text(response) for response in responses],
        ground_truth=reference_text(ground_truth),
        existing=existing_rubrics or (),
    )


def judge_at(base_url: str, model: str, api_key: str | None = None, timeout: float | None = None) -> Judge:
    """The judge at an address; calls with the same arguments share its connections and its limit."""
    return _judge_at(base_url, model, config.resolve_judge_key(api_key, base_url), timeout or JUDGE_SECONDS)


@lru_cache(maxsize=64)
def _judge_at(base_url: str, model: str, api_key: str | None, timeout: float) -> Judge:
    return Judge(name=model, base_url=base_url, api_key=api_key, timeout=timeout)


def question_text(prompt: Any) -> str:
    """The question in a text or in messages."""
    return prompt if isinstance(prompt, str) else last_user_text(prompt)


def reference_text(ground_truth: Any) -> str | None:
    """The reference answer as text, or None when there is none."""
    if ground_truth is None or isinstance(ground_truth, str):
        return ground_truth or None
    try:
        return json.dumps(ground_truth, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(ground_truth)


def ground_truth_anchor(ground_truth: str) -> RankingAnchor:
    return RankingAnchor(ground_truth, GROUND_TRUTH_SCORE, "ground truth")
