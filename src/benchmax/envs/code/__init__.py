"""Functions to be written, with hidden tests that run in the sandbox.

code_env.py         the environment and its tool, `run_python`; start reading here
row_shapes.py       a question and its tests, out of the columns of known sets
levels/             generated tasks
answers.py          the code in what a model wrote
solution_runner.py  solutions in the sandbox; inside/ is what runs there
reward.py           which tests hold, and what that is worth
"""

from benchmax.envs.code.code_env import CodeEnv

__all__ = ["CodeEnv"]
