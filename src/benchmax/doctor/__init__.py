"""The doctor: learn that an environment is broken, empty or hackable before training on it.

    diagnosis = await examine(MyEnv, rows=rows)      # or examine_sync(…), also inside a running loop
    print(diagnosis)

An examination plays rollouts on real rows with prepared answers and records what it observes (the evidence). Checks,
one small function each, turn the evidence into findings.

examine               the entry points, from a class and rows to a `Diagnosis`; start reading here
composed              the diagnosis of a composed environment, part by part
evidence_collector    plays everything; `probe_player` plays answers, `probe_answers` and `lazy_strategies` write them,
                      `tool_arguments` makes calls, `recording_host` records hooks; `interpreter_watch` is a child
evidence, findings    what was observed; what the doctor says about it; `quoting` words it
registry, checks/     the list of checks, and the checks by what they look at: a new one is one function there
gold/                 finds what a good answer looks like, and whole solutions
learning_signal       can a model learn here? `first_samples` plays the samples that tell

Nothing here knows a trainer: training imports the doctor, not the other way round.
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
