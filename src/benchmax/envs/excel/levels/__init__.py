"""Levels of difficulty, easiest first: the tools that each lists, functions that make its tasks, and rows of them.

    make_rows("formulas", rows=1000, seed=0)

`rows.py` lists the levels and makes their rows, `task.py` says what a task is. `tables.py`, `conditions.py`,
`reports.py` and `manipulation.py` make them, with names from `words.py`; `distinguishing_inputs.py` finds the hidden
inputs on which a formula that is nearly right goes wrong.
"""

from benchmax.envs.excel.levels.rows import DEFAULT_LEVEL, LEVELS, ROWS, Level, make_rows

__all__ = ["DEFAULT_LEVEL", "LEVELS", "ROWS", "Level", "make_rows"]
