"""The reward of a rollout: the metric that its row names."""

from benchmax.envs.crm.reward import match

reward_functions = {"match": match}
