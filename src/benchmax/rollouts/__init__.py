"""How rollouts are run and recorded. Start reading at `play`.

play         one rollout: model turns, tool turns, budgets; `demonstrations` plays the environment's own solution
groups       the siblings of one example, and batches of groups
host         `EnvHost`, which calls an environment's hooks; `hooks` runs them apart from the caller's event loop
             (`processor_wait`: what a busy machine adds to their times)
toolbox      an environment's tools; `tool_schema` checks arguments, `regex_cost` bounds patterns
scoring      from a finished rollout to its reward
record       `Rollout`; `record_files` keeps it in files, `replay` scores saved ones again
settings     budgets, deadlines, sampling; `arguments` refuses what cannot be played

Nothing here knows which model answers, or what rollouts are used for.
"""

from benchmax.rollouts.groups import run_batch, run_group, run_groups
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Failure, Rollout, Termination
from benchmax.rollouts.record_files import RolloutLog, latest_rollouts, read_rollouts
from benchmax.rollouts.replay import replay
from benchmax.rollouts.settings import RolloutSettings

__all__ = [
    "EnvHost",
    "Failure",
    "Rollout",
    "RolloutLog",
    "RolloutSettings",
    "Termination",
    "latest_rollouts",
    "read_rollouts",
    "replay",
    "run_batch",
    "run_group",
    "run_groups",
    "run_rollout",
]
