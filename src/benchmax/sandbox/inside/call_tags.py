"""Which call a process belongs to, where there are no pid namespaces.

A tag is a number in two limits that Linux does not apply here but passes on to children, and that only root may raise:
the number and its mirror image, so that a process that lowers both to imitate another tag has an invalid pair. It
holds for whatever leaves its session and its parents. Needs nothing but Linux.
"""

from __future__ import annotations

import resource

_LOCKS, _RTTIME = 10, 15
_LOW = 0xFFFFFFFF
CHANGED = -1
"""The tag of a process that changed it."""


def tag(number: int) -> None:
    """Tag this process and all that it will start."""
    for kind, value in ((_LOCKS, number), (_RTTIME, _mirrored(number))):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def tag_of(pid: int) -> int | None:
    """The tag of a process, or CHANGED; None when it has none, or has ended."""
    try:
        number, mirrored = (resource.prlimit(pid, kind)[1] for kind in (_LOCKS, _RTTIME))
    except (OSError, ValueError):
        return None
    if (number, mirrored) == tuple(resource.getrlimit(kind)[1] for kind in (_LOCKS, _RTTIME)):
        return None
    return number if mirrored == _mirrored(number) else CHANGED


def unique(server: int, number: int) -> int:
    """A tag that no other call on this machine has: `server` is the server's pid."""
    return server << 32 | number


def _mirrored(number: int) -> int:
    return number - (number & _LOW) + _LOW - (number & _LOW)
