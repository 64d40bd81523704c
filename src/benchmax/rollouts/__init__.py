"""How rollouts are run: one, a group of siblings, a batch; their record, their files, their replay."""

from benchmax.rollouts.groups import run_batch, run_group, run_groups
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.log import RolloutLog, latest_rollouts, read_rollouts
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Failure, Rollout, Termination
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
