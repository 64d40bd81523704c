"""The reward that `MathEnv` computes in its own process, for use of this workdir without that class."""

from typing import Any

from benchmax.envs.math.answers import MathJudge, final_answer

judge = MathJudge()


def match(completion: Any, ground_truth: Any, **kwargs: Any) -> float:
    """The answer in tags is the right one."""
    answer = final_answer(completion)
    return float(answer is not None and judge.same(answer, str(ground_truth)))


reward_functions = {"match": match}
