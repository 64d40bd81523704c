"""The private directories of one rollout."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmax.envs.mcp.workdir import open_to_servers
from benchmax.files.temp_dirs import remove_tree
from benchmax.sandbox.inside.guards import FIRST_UID, NOBODY

DIR_VARIABLES = ("HOME", "TMPDIR", "PWD")
"""Environment variables that name them to a process."""


def make_rollouts_dir(root: Path, workdir: Path) -> Path:
    """The folder of all rollouts. As root, the servers' user may enter it, and read the agent's copy of the workdir."""
    rollouts = root / "rollouts"
    if rollouts.exists():
        remove_tree(rollouts)  # an agent that was killed here left it
    rollouts.mkdir(mode=0o700)
    if os.geteuid() == 0:
        for folder in (root, rollouts):
            _let_pass(folder)
        if workdir.resolve().is_relative_to(root.resolve()):
            open_to_servers(workdir)
    return rollouts


def _let_pass(folder: Path) -> None:
    """The user that this agent's servers run as; a container may have few numbers."""
    for number in (FIRST_UID + os.getpid(), NOBODY):
        try:
            os.chown(folder, -1, number)
        except OSError:
            continue
        folder.chmod(0o710)
        return


@dataclass(frozen=True, slots=True)
class RolloutDirs:
    """`own` and everything in it belongs to one rollout."""

    own: Path

    @property
    def workspace(self) -> Path:
        return self.own / "workspace"

    @classmethod
    def make(cls, root: Path) -> RolloutDirs:
        dirs = cls(Path(tempfile.mkdtemp(prefix="r-", dir=root)))  # mode 0700
        for each in (dirs.workspace, dirs.own / "home", dirs.own / "tmp"):
            each.mkdir(mode=0o700)
        return dirs

    def give_to(self, user: int) -> None:
        """As root: servers run as another user, and rewards as a root without capabilities; both write here."""
        if os.geteuid() == 0:
            for each in (self.own, *self.own.iterdir()):
                os.chown(each, user, 0)
                each.chmod(0o770)

    def open_up(self) -> None:
        """Let any user in, for a process that imports packages before its user is known; others cannot reach `own`."""
        for each in (self.own, *self.own.iterdir()):
            each.chmod(0o777)

    def variables(self) -> dict[str, str]:
        return dict(zip(DIR_VARIABLES, (f"{self.own}/home", f"{self.own}/tmp", str(self.workspace)), strict=True))
