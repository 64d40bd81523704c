"""What a run uses of the machine, from /proc, written to its system.jsonl every five seconds.

GPUs are asked by a thread of their own: `nvidia-smi` takes its time, and the supervisor waits for nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmax.files.links import append_to

FILE = "system.jsonl"
EVERY_SECONDS = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_QUERY = "index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu"


class Gauge:
    """One run's use, from one look to the next."""

    def __init__(self) -> None:
        self._at = 0.0
        self._ticks: dict[tuple[int, float], int] = {}

    def write(self, run_dir: Path, family: Iterable[Sequence[float]], slots: Sequence[str] = ()) -> None:
        """Append a sample, when it is time for one; the first look only sets the mark."""
        now = time.monotonic()
        if now - self._at < EVERY_SECONDS and self._at:
            return
        sample = self._sample(family, now, slots)
        self._at = now
        if sample is None:
            return
        descriptor = append_to(run_dir, FILE)
        try:
            os.write(descriptor, json.dumps(sample, separators=(",", ":")).encode() + b"\n")
        finally:
            os.close(descriptor)

    def _sample(self, family: Iterable[Sequence[float]], now: float, slots: Sequence[str]) -> dict[str, Any] | None:
        before, ticks, memory = self._ticks, {}, 0
        for pid, *_, started in family:
            used = _used(int(pid))
            if used is not None:
                ticks[int(pid), started] = used[0]
                memory += used[1]
        self._ticks = ticks
        if not self._at or not ticks:
            return None
        # One that came since counts whole; one that went is lost, so that the sum never is negative.
        spent = sum(count - before.get(key, 0) for key, count in ticks.items())
        return {
            "time": round(time.time(), 3),
            "cpuPercent": round(max(0.0, 100.0 * spent / _TICKS / (now - self._at)), 1),
            "memoryBytes": memory,
            "processes": len(ticks),
            "gpu": _gpus(slots),
            "cores": os.cpu_count() or 1,
            "memoryTotal": _PAGE * os.sysconf("SC_PHYS_PAGES"),
            "load": round(os.getloadavg()[0], 2),
        }


def _used(pid: int) -> tuple[int, int] | None:
    """Clock ticks and resident bytes of a process; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


# GPUs

_latest: dict[str, dict[str, Any]] = {}
_asked = threading.Event()


def _gpus(slots: Sequence[str]) -> list[dict[str, Any]]:
    """The latest reading of the GPUs a run has; none on a machine without."""
    wanted = [name.removeprefix("cuda:") for name in slots if name.startswith("cuda:")]
    if wanted and not _asked.is_set() and shutil.which("nvidia-smi"):
        _asked.set()
        threading.Thread(target=_ask_for_ever, name="benchmax-gpus", daemon=True).start()
    return [_latest[name] for name in wanted if name in _latest]


def _ask_for_ever() -> None:
    while True:
        _latest.update(read_gpus())
        time.sleep(EVERY_SECONDS)


def read_gpus() -> dict[str, dict[str, Any]]:
    """Every GPU by its number, as `nvidia-smi` tells."""
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for line in told.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == 7:
            number, name, *rest = values
            percent, used, total, watts, celsius = map(_number, rest)
            found[number] = {
                "name": f"{number} {name}", "percent": percent or 0.0, "memoryBytes": int((used or 0) * 2**20),
                "memoryTotal": int((total or 0) * 2**20), "watts": watts, "celsius": celsius,
            }  # fmt: skip
    return found


def _number(text: str) -> float | None:
    """None for `[N/A]`."""
    try:
        return float(text)
    except ValueError:
        return None
