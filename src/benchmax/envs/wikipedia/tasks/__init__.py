"""Questions about the World Factbook: made by seed from its facts, each with one right answer.

fields   the facts that are asked for: where they stand, how they are asked, what of them is the answer
kinds    the kinds of questions, from one look-up to three steps, and how each is solved with the tools
rows     the levels of difficulty, and the rows of each
"""

from benchmax.envs.wikipedia.tasks.kinds import KINDS
from benchmax.envs.wikipedia.tasks.rows import DEFAULT_LEVEL, LEVELS, make_rows

__all__ = ["DEFAULT_LEVEL", "KINDS", "LEVELS", "make_rows"]
