"""Levels of difficulty, easiest first: functions that make a task from a random generator, and rows of them.

    make_rows("lines", rows=1000, seed=0)

`rows.py` lists the levels and makes their rows, `task.py` says what a task is; `lines.py` and `steps.py` (of
`operations.py`), `cases.py` and `algorithms/` make them from `inputs.py`. Hidden tests come from `boundary_calls.py`
and from `mutants.py`: calls that tell a solution from one that is nearly right.
"""

from benchmax.envs.code.levels.rows import DEFAULT_LEVEL, LEVELS, ROWS, make_rows

__all__ = ["DEFAULT_LEVEL", "LEVELS", "ROWS", "make_rows"]
