"""Levels of difficulty, easiest first: functions that make a task from a random generator, and rows of them.

    make_rows("arithmetic", rows=1000, seed=0)

`rows.py` lists the levels and makes their rows, `task.py` says what a task is; `arithmetic.py`, `school.py` and
`competition.py` make them.
"""

from benchmax.envs.math.levels.rows import DEFAULT_LEVEL, LEVELS, ROWS, SYMBOLIC, make_rows

__all__ = ["DEFAULT_LEVEL", "LEVELS", "ROWS", "SYMBOLIC", "make_rows"]
