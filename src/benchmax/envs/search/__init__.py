"""Questions answered by searching a corpus, with citations.

search_env   the environment: start here
results      what a search shows to the model, whatever the corpus returns
grading      how right an answer is, without a judge; `judging` asks one
citations    which sources an answer cites
handbook     the corpus that comes with it, and questions about it
"""

from benchmax.envs.search.search_env import SearchEnv

__all__ = ["SearchEnv"]
