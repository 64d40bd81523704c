"""Tasks about a generated company, each with an answer that was computed from its records, not asked of the tools.

kinds       what a kind of task is, and the table of all of them
periods     spans of time in a question, and how tools turn them into dates
knowledge   questions about policies, and chats that broke one
customers   who bought what, whose account it is, who ordered most
products    what goes wrong with a product, and when
agents      transfers, handle times, routing, regions
rows        the levels, and the rows of a dataset

A kind draws a task (`draw`) and plays its solution through the tools (`solve`). The two share no code but the words of
the question, so a solution that scores 1.0 verifies both.
"""

from benchmax.envs.crm.tasks.kinds import KINDS
from benchmax.envs.crm.tasks.rows import DEFAULT_LEVEL, LEVELS, Level, make_rows

__all__ = ["DEFAULT_LEVEL", "KINDS", "LEVELS", "Level", "make_rows"]
