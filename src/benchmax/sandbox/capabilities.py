"""Which guards work on this machine: found by trying, and required before untrusted code runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmax.config import setting
from benchmax.errors import SandboxUnavailable
from benchmax.sandbox.call import Limits
from benchmax.sandbox.connection import SANDBOXED
from benchmax.sandbox.inside.guards import ADVICE, BOUNDARY, GUARDS

Level = Literal["boundary", "partial", "none"]
_ORDER: tuple[Level, ...] = ("none", "partial", "boundary")
INSIST = "SANDBOX_INSIST"
NESTED_GUARDS = frozenset(
    {"landlock_files", "landlock_scope", "seccomp", "no_new_privs", "capabilities", "descriptors"}
)
"""The guards required inside another sandbox, which refuses namespaces: for files, memory and signals of others."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guards that work on this machine, and why others do not."""

    guards: frozenset[str]
    lacks: Mapping[str, str]
    root: bool
    """Whether this is root, whose calls then run as a user that owns nothing."""

    @property
    def level(self) -> Level:
        """`boundary`: enough for untrusted code. `partial`: some guards. `none`: not even files are protected."""
        if not self.missing:
            return "boundary"
        return "partial" if self.guards & {"landlock_files", "mount"} else "none"

    @property
    def missing(self) -> frozenset[str]:
        """The guards that a boundary still needs."""
        return (BOUNDARY | ({"uid"} if self.root else frozenset())) - self.guards

    @property
    def within(self) -> bool:
        """Whether this process is in a sandbox, which protects the machine, and can protect itself from other code."""
        return os.environ.get(SANDBOXED) == "1" and self.guards >= NESTED_GUARDS

    def advice(self) -> dict[str, str]:
        """The guards that do not work, grouped by reason: what is lost, why, and what to do."""
        causes: dict[tuple[str, str], list[str]] = {}
        for name in GUARDS:
            if name in self.lacks:
                causes.setdefault((self.lacks[name], ADVICE.get(name, "Use Linux.")), []).append(name)
        return {
            ", ".join(names): f"{'; '.join(GUARDS[name] for name in names)}: not here ({why}). {advice}"
            for (why, advice), names in causes.items()
        }

    def describe(self) -> str:
        """One line for people."""
        held = f"{self.level}: {', '.join(name for name in GUARDS if name in self.guards) or 'nothing'} hold"
        lost = [name for name in GUARDS if name in self.missing | self.lacks.keys()]
        return f"{held}, {', '.join(lost)} do not" if lost else held


def insists() -> bool:
    """Whether the user wants code to run without a boundary: BENCHMAX_SANDBOX_INSIST=1."""
    return setting(INSIST) == "1"


def require(level: Level, found: Capabilities, *, insist: bool = False) -> None:
    """Raise SandboxUnavailable when this machine offers less, unless the user insists."""
    if insist or _ORDER.index(found.level) >= _ORDER.index(level):
        return
    raise SandboxUnavailable(
        f"This machine cannot confine code that nobody has read ({found.describe()}). Run it where user namespaces and "
        f"seccomp are allowed, or, if you trust the code with everything you can read, set BENCHMAX_{INSIST}=1."
    )


async def capabilities() -> Capabilities:
    """The guards that work here; takes a tenth of a second."""
    if sys.platform != "linux":
        reason = "the sandbox needs Linux"
        return Capabilities(frozenset(), dict.fromkeys(BOUNDARY, reason), root=False)
    from benchmax.sandbox.sandbox import Sandbox

    async with Sandbox(insist=True, group=Limits(memory_bytes=None)) as sandbox:
        return await sandbox.start()
