"""What a sandbox's forker imports for a Python server, and how it runs one in a fork (see benchmax.sandbox's `zygote`).

Runs under any Python from 3.9 with the standard library alone: it imports nothing of benchmax, and finds `preload` and
`warm_up` in its own folder without putting that on the path, where servers would find it.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

LOADER = os.path.abspath(__file__)
MOST_ROUNDS = 5
"""How often imports may restart without packages that must not be imported here."""


def _beside(name: str) -> Any:
    path = os.path.join(os.path.dirname(LOADER), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_benchmax_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


preload, warm_up = _beside("preload"), _beside("warm_up")


def prepare(plan: dict[str, Any]) -> dict[str, Any]:
    """Import packages, or find which of them depend on what differs between rollouts and begin again without."""
    python, excluded, known = plan["python"], plan.get("not_preloaded", {}), plan.get("known", [])
    before = set(sys.modules)
    _renew_streams()
    watch = preload.ImportWatch(python["own"], python["varying"], excluded)
    watch.begin([python["target"], *python["arguments"]])
    try:
        reason = preload.preload(watch, python["kind"], python["target"], python["also"], known)
        if reason is None and not watch.found:
            warm_up.warm_up()
    finally:
        watch.end()
    if watch.found and plan.get("round", 0) < MOST_ROUNDS:
        return {"again": _changed(plan, watch.found, [name for name in sys.modules if name not in before])}
    if watch.found:
        name, what = next(iter(watch.found.items()))
        reason = f"its package {name} {what} when imported"
    return {"reason": reason, "not_preloaded": excluded}


def _changed(plan: dict[str, Any], found: dict[str, str], imported: list[str]) -> dict[str, Any]:
    excluded = {**plan.get("not_preloaded", {}), **found}
    known = [*plan.get("known", []), *imported]
    known = [name for name in dict.fromkeys(known) if name.partition(".")[0] not in excluded]
    if set(preload.SEEN_AFTERWARDS) & set(found.values()):
        known.reverse()  # imported modules before their importers, so that the right one is blamed
    return {**plan, "not_preloaded": excluded, "known": known, "round": plan.get("round", 0) + 1}


def run(plan: dict[str, Any], task: dict[str, Any]) -> None:
    """In a fork: the server itself."""
    sys.excepthook = _without_frames(_own_frames())
    preload.run(plan["python"]["kind"], plan["python"]["target"], task["argv"])


def _own_frames() -> set[str]:
    """The files of all that runs before a server's first line."""
    found = {str(preload.__file__)}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        found.add(frame.f_code.co_filename)
        frame = frame.f_back
    return found


def _without_frames(files: set[str]) -> Callable[..., None]:
    def show(kind: Any, error: BaseException, trace: Any) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename in files:
            trace = trace.tb_next
        sys.__excepthook__(kind, error.with_traceback(trace), trace)

    return show


class _Pipe(io.FileIO):
    """A descriptor that will be a pipe; now it is /dev/null, which can seek."""

    def seekable(self) -> bool:
        return False


def _renew_streams() -> None:
    """Replace the standard streams by ones that packages may keep when imported, as they stay valid in servers."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = _Pipe(fd, "r" if fd == 0 else "w", closefd=False)
        buffer: Any = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(buffer, encoding=old.encoding, errors=old.errors, line_buffering=fd > 0)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
