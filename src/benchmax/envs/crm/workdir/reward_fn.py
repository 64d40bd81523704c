"""The reward of a rollout: the metric that its row names."""

from typing import Any

from benchmax.envs.crm.reward import score_task


def match(completion: Any, **task: Any) -> float:
    return score_task(completion, task)


reward_functions = {"match": match}
