"""Mathematics from one-digit sums to competition style, with a calculator as an MCP server.

math_env.py     the environments; start reading here
workdir/        the MCP workdir: calculator_server.py and its configuration
row_shapes.py   a question and its answer, out of the columns of known sets
levels/         generated tasks
answers.py      the answer in what a model wrote, and whether it is right
                number_equality.py: numbers in every notation; judge_process.py: everything else, by math-verify
"""

from benchmax.envs.math.math_env import MathEnv, MathEnvLocal, MathEnvSkypilot

__all__ = ["MathEnv", "MathEnvLocal", "MathEnvSkypilot"]
