"""Questions answered by searching a corpus, with citations.

search_env   the environment: start here
grading      how right an answer is, without a judge, and which sources it cites; `judging` asks one
handbook     the corpus that comes with it, and questions about it
"""

from benchmax.envs.search.search_env import SearchEnv

__all__ = ["SearchEnv"]
