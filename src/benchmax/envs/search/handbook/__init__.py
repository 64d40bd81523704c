"""An invented company's handbook: short texts about people, projects, offices and rooms, and questions about them.

company   the records, made by seed, and the texts about them
tasks     the kinds of questions, how each is solved with the search, and the rows of each level
"""

from benchmax.envs.search.handbook.company import handbook_index
from benchmax.envs.search.handbook.tasks import DEFAULT_LEVEL, KINDS, LEVELS, make_rows

__all__ = ["DEFAULT_LEVEL", "KINDS", "LEVELS", "handbook_index", "make_rows"]
