"""Mathematics from one-digit sums to competition style, with a calculator as an MCP server.

math_env.py     the environments; start reading here
workdir/        the MCP workdir: calculator_server.py and its configuration
rows.py         a question and its answer, out of the columns of known sets
levels/         generated tasks
answers.py      the answer in what a model wrote; numbers.py: numbers in every notation
judge.py        everything else, by math-verify, in judge_process.py
"""

from benchmax.envs.math.math_env import MathEnv, MathEnvLocal, MathEnvSkypilot

__all__ = ["MathEnv", "MathEnvLocal", "MathEnvSkypilot"]
