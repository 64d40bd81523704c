"""Reward functions made of rubrics, with a judge named by address and model: the published API on top of `rewards`.

functions     rewards for compute_reward and compute_group_reward; start reading here
evaluate      one judge question at a time
cache         adaptive rubrics kept in a file
"""

from benchmax.rewards.rubric import Rubric
from benchmax.rubrics.evaluate import (
    evaluate_rubric_ranking,
    evaluate_single_rubric,
    generate_instance_wise_adaptive_rubrics,
)
from benchmax.rubrics.functions import (
    group_rubric_based_reward_function,
    group_rubric_ranked_reward_function,
    single_rubric_based_reward_function,
)

__all__ = [
    "Rubric",
    "evaluate_rubric_ranking",
    "evaluate_single_rubric",
    "generate_instance_wise_adaptive_rubrics",
    "group_rubric_based_reward_function",
    "group_rubric_ranked_reward_function",
    "single_rubric_based_reward_function",
]
