"""What a run uses of the machine, written to its system.jsonl every five seconds.

GPUs are read through NVML, if its Python binding is installed, in a thread of their own: a driver may take its time,
and the supervisor never blocks.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmax.files.links import append_to

FILE = "system.jsonl"
EVERY_SECONDS = 5.0


class UsageRecorder:
    """Records one run's use, from one look to the next."""

    def __init__(self) -> None:
        self._at = 0.0
        self._seconds: dict[tuple[int, float], float] = {}

    def write(self, run_dir: Path, family: Iterable[Sequence[float]], slots: Sequence[str] = ()) -> None:
        """Append a sample when one is due; the first look only sets the starting point."""
        now = time.monotonic()
        if now - self._at < EVERY_SECONDS and self._at:
            return
        sample = self._sample(family, now, slots)
        self._at = now
        if sample is None:
            return
        with open(append_to(run_dir, FILE), "ab") as file:
            file.write(json.dumps(sample, separators=(",", ":")).encode() + b"\n")

    def _sample(self, family: Iterable[Sequence[float]], now: float, slots: Sequence[str]) -> dict[str, Any] | None:
        before, seconds, memory = self._seconds, {}, 0
        for pid, *_, started in family:
            used = _used(int(pid))
            if used is not None:
                seconds[int(pid), started] = used[0]
                memory += used[1]
        self._seconds = seconds
        if not self._at or not seconds:
            return None
        # A new process counts whole; one that ended is lost, so that the sum is never negative.
        spent = sum(count - before.get(key, 0.0) for key, count in seconds.items())
        return {
            "time": round(time.time(), 3),
            "cpuPercent": round(max(0.0, 100.0 * spent / (now - self._at)), 1),
            "memoryBytes": memory,
            "processes": len(seconds),
            "gpu": _gpus(slots),
            "cores": os.cpu_count() or 1,
            "memoryTotal": psutil.virtual_memory().total,
            "load": round(os.getloadavg()[0], 2),
        }


def _used(pid: int) -> tuple[float, int] | None:
    """CPU seconds and resident bytes of a process; None when it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss
    except psutil.Error:
        return None


# GPUs

_latest: dict[str, dict[str, Any]] = {}
_reading = threading.Event()


def _gpus(slots: Sequence[str]) -> list[dict[str, Any]]:
    """The latest reading of the GPUs a run has; none on a machine without."""
    wanted = gpu_ids(slots)
    if wanted and not _reading.is_set():
        _reading.set()
        threading.Thread(target=_read_forever, name="benchmax-gpus", daemon=True).start()
    return [_latest[name] for name in wanted if name in _latest]


def gpu_ids(slots: Iterable[str]) -> list[str]:
    """The GPUs among the slots, as CUDA names them."""
    return [name.removeprefix("cuda:") for name in slots if name.startswith("cuda:")]


def _read_forever() -> None:
    while True:
        _latest.update(read_gpus())
        time.sleep(EVERY_SECONDS)


def read_gpus() -> dict[str, dict[str, Any]]:
    """Every NVIDIA GPU by its index; none without a driver or without the binding."""
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        return {str(index): _read_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())}
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _read_gpu(nvml: Any, index: int) -> dict[str, Any]:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)

    def read(call: Callable[[], Any]) -> Any:
        """None for what this GPU does not report."""
        try:
            return call()
        except nvml.NVMLError:
            return None

    use = read(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu))
    memory = read(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2))  # without what the driver reserves
    milliwatts = read(lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
    celsius = read(lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
    return {
        "name": f"{index} {nvml.nvmlDeviceGetName(gpu)}",
        "percent": float(use.gpu) if use else 0.0,
        "memoryBytes": memory.used if memory else 0,
        "memoryTotal": memory.total if memory else 0,
        "watts": None if milliwatts is None else milliwatts / 1000,
        "celsius": None if celsius is None else float(celsius),
    }
