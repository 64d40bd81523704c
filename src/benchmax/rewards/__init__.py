"""Scoring what a model did. Start reading at `functions` for plain code, at `judge` for language models.

functions     reward functions by name
judge         asks a model for verdicts; `verdict` reads its replies, `judge_cache` keeps them
rubric        one criterion each; `adaptive` writes criteria for one question
ranking       one judge call orders a group; `tournament` compares pairs; `diversity` divides rewards of equal answers

Environments call these from compute_reward and compute_group_reward; nothing here calls an environment.
"""

from benchmax.envs.types import Unscored
from benchmax.errors import JudgeError
from benchmax.rewards.adaptive import RubricCache, adaptive_score, generate_rubrics
from benchmax.rewards.diversity import DiversityConfig, cluster_texts, scale_by_diversity
from benchmax.rewards.functions import Rewards
from benchmax.rewards.judge import Judge, JudgeUsage
from benchmax.rewards.judge_cache import JudgeCache
from benchmax.rewards.ranking import RankingAnchor, rank_group_rubrics
from benchmax.rewards.rubric import Rubric, score_group_rubrics, score_rubrics
from benchmax.rewards.tournament import tournament

__all__ = [
    "DiversityConfig",
    "Judge",
    "JudgeCache",
    "JudgeError",
    "JudgeUsage",
    "RankingAnchor",
    "Rewards",
    "Rubric",
    "RubricCache",
    "Unscored",
    "adaptive_score",
    "cluster_texts",
    "generate_rubrics",
    "rank_group_rubrics",
    "scale_by_diversity",
    "score_group_rubrics",
    "score_rubrics",
    "tournament",
]
