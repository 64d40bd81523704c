"""Puzzles of reasoning-gym: every task as an environment, `reasoning/leg_counting`, or several in one, `reasoning`.

reasoning_env.py   the environment; start reading here
tasks.py           the tasks by name, a class for each
puzzle_process.py  where puzzles are made and scored
"""

from benchmax.envs.reasoning.reasoning_env import ReasoningEnv

__all__ = ["ReasoningEnv"]
