"""What this machine can hold code to: found out by trying, told by name, and required before code that nobody read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmax.config import setting
from benchmax.errors import SandboxUnavailable
from benchmax.sandbox.call import Limits
from benchmax.sandbox.inside.guards import ADVICE, BOUNDARY, GUARDS

Level = Literal["boundary", "partial", "none"]
_ORDER: tuple[Level, ...] = ("none", "partial", "boundary")
INSIST = "SANDBOX_INSIST"
INNER = frozenset({"landlock_files", "landlock_scope", "seccomp", "no_new_privs", "capabilities", "descriptors"})
"""What must hold within a sandbox, where no namespace is to be had: neither files nor memory nor signals of others."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guards that hold on this machine, and why others do not."""

    guards: frozenset[str]
    lacks: Mapping[str, str]
    root: bool
    """Whether this is root, whose calls then run as a user that owns nothing."""

    @property
    def level(self) -> Level:
        """`boundary`: for code that nobody has read. `partial`: some guards. `none`: not even files are guarded."""
        if not self.missing:
            return "boundary"
        return "partial" if self.guards & {"landlock_files", "mount"} else "none"

    @property
    def missing(self) -> frozenset[str]:
        """What a boundary would need besides."""
        return (BOUNDARY | ({"uid"} if self.root else frozenset())) - self.guards

    @property
    def within(self) -> bool:
        """Whether this process is in a sandbox, which holds the machine, and can hold code from itself."""
        return os.environ.get("BENCHMAX_SANDBOXED") == "1" and self.guards >= INNER

    def advice(self) -> dict[str, str]:
        """Of guards that do not hold, those with one reason together: what is lost, why, and what to do."""
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
    """SandboxUnavailable when this machine holds less, unless the user insists."""
    if insist or _ORDER.index(found.level) >= _ORDER.index(level):
        return
    raise SandboxUnavailable(
        f"This machine cannot confine code that nobody has read ({found.describe()}). Run it where user namespaces and "
        f"seccomp are allowed, or, if you trust the code with everything you can read, set BENCHMAX_{INSIST}=1."
    )


async def capabilities() -> Capabilities:
    """What holds here; takes a tenth of a second."""
    if sys.platform != "linux":
        reason = "the sandbox needs Linux"
        return Capabilities(frozenset(), dict.fromkeys(BOUNDARY, reason), root=False)
    from benchmax.sandbox.sandbox import Sandbox

    async with Sandbox(insist=True, group=Limits(memory_bytes=None)) as sandbox:
        return await sandbox.start()
