"""Algorithms: something to search, count or simulate, with parameters that make each task another.

What is right is found by trying everything, or in another way than the solution: each checks the other.

`texts.py`, `numbers.py` and `grids.py` hold them by what they work on.
"""

from __future__ import annotations

from benchmax.envs.code.levels.algorithms import grids, numbers, texts
from benchmax.envs.code.levels.task import MakeTask

MAKERS: tuple[MakeTask, ...] = (*numbers.MAKERS, *texts.MAKERS, *grids.MAKERS)
