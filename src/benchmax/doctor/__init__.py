"""The doctor: learn that an environment is broken, empty or hackable before training on it.

    diagnosis = await examine(MyEnv, rows=rows)      # or examine_sync(…), also inside a running loop
    print(diagnosis)

An examination plays the environment's whole life on real rows with prepared answers, and writes down what it sees (the
evidence). Checks, one small function each, turn the evidence into findings.
"""

from benchmax.doctor.evidence import Pace
from benchmax.doctor.examine import examine, examine_apart, examine_sync
from benchmax.doctor.findings import CheckLine, ComponentStat, Diagnosis, Finding
from benchmax.doctor.registry import CHECKS

__all__ = [
    "CHECKS",
    "CheckLine",
    "ComponentStat",
    "Diagnosis",
    "Finding",
    "Pace",
    "examine",
    "examine_apart",
    "examine_sync",
]
