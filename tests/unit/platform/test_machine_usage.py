"""What a run uses of the machine."""

import os
import sys
import time
from types import ModuleType, SimpleNamespace

from benchmax.platform.runner.processes import machine_usage, process_ids
from benchmax.platform.runner.processes.machine_usage import UsageRecorder, read_gpus


class NVMLError(Exception):
    pass


def not_supported(_):
    raise NVMLError


def driver():
    """NVML as it answers for one GPU that does not report its power."""
    made = ModuleType("pynvml")
    made.NVMLError, made.NVML_TEMPERATURE_GPU, made.nvmlMemory_v2 = NVMLError, 0, 2
    made.nvmlInit = made.nvmlShutdown = lambda: None
    made.nvmlDeviceGetCount, made.nvmlDeviceGetHandleByIndex = lambda: 1, lambda index: index
    made.nvmlDeviceGetName = lambda _: "NVIDIA H200"
    made.nvmlDeviceGetUtilizationRates = lambda _: SimpleNamespace(gpu=37)
    made.nvmlDeviceGetMemoryInfo = lambda _, version: SimpleNamespace(used=2**30, total=2**37)
    made.nvmlDeviceGetPowerUsage = not_supported
    made.nvmlDeviceGetTemperature = lambda _, sensor: 41
    return made


def test_a_gpu_is_read_with_what_it_reports(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    assert read_gpus() == {
        "0": {"name": "0 NVIDIA H200", "percent": 37.0, "memoryBytes": 2**30, "memoryTotal": 2**37, "watts": None,
              "celsius": 41.0}
    }  # fmt: skip


def test_a_machine_without_the_binding_or_the_driver_has_no_gpus(monkeypatch):
    without_driver = driver()
    without_driver.nvmlInit = lambda: not_supported(0)
    for module in (None, without_driver):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert read_gpus() == {}


def test_the_use_of_a_process_is_measured_between_two_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_usage, "EVERY_SECONDS", 0.0)
    recorder, family = UsageRecorder(), [[os.getpid(), os.getsid(0), process_ids.started(os.getpid())]]
    recorder.write(tmp_path, family)
    assert not (tmp_path / "system.jsonl").exists(), "the first look is the starting point"
    spent = time.process_time()
    while time.process_time() - spent < 0.1:
        pass
    recorder.write(tmp_path, [*family, [2**22 + 1, 0, 0.0]])
    assert '"processes":1,' in (tmp_path / "system.jsonl").read_text()
    assert '"cpuPercent":0.0' not in (tmp_path / "system.jsonl").read_text()
