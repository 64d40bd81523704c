"""The private directories of one rollout."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

DIR_VARIABLES = ("HOME", "TMPDIR", "PWD")
"""Environment variables that name them to a process."""


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

    def variables(self) -> dict[str, str]:
        return dict(zip(DIR_VARIABLES, (f"{self.own}/home", f"{self.own}/tmp", str(self.workspace)), strict=True))
