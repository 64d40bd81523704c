"""An invented company's handbook: short texts about people, projects, offices and rooms, and questions about them.

company   the records, made by seed, and the texts about them
tasks     the kinds of questions, and how each is solved with the search
rows      the levels of difficulty, and the rows of each
"""

from benchmax.envs.search.handbook.company import handbook_index
from benchmax.envs.search.handbook.rows import DEFAULT_LEVEL, LEVELS, make_rows
from benchmax.envs.search.handbook.tasks import KINDS

__all__ = ["DEFAULT_LEVEL", "KINDS", "LEVELS", "handbook_index", "make_rows"]
