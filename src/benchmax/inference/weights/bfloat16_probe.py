"""Tests whether bfloat16 works on this CPU, in a child process that may crash.

Some virtual machines advertise AMX and fault on it: the first matrix product ends the process with SIGILL. The result
is stored per machine, torch version and oneDNN setting, so that the test runs once.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from benchmax.config import home
from benchmax.errors import UsageError
from benchmax.files.atomic import read_object, write_json

ISA = "ONEDNN_MAX_CPU_ISA"
SAFE_ISA = "AVX512_CORE_BF16"
PROBE_SECONDS = 120.0

PROGRAM = """
import torch
torch.manual_seed(0)
for rows, inner, columns in ((1, 64, 64), (8, 576, 1536), (64, 512, 256)):
    a, b = torch.randn(rows, inner), torch.randn(columns, inner)
    wide, narrow = a @ b.t(), torch.nn.functional.linear(a.bfloat16(), b.bfloat16()).float()
    assert (wide - narrow).abs().max() < 0.05 * inner**0.5, "wrong products"
q = torch.randn(2, 3, 300, 64).bfloat16()
assert torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).isfinite().all(), "wrong attention"
"""


def check_bfloat16() -> None:
    """Raise UsageError unless bfloat16 products work here."""
    file = home() / "probes" / f"bfloat16-{_machine()}.json"
    verdict = read_object(file).get("problem")
    if not isinstance(verdict, str):
        verdict, certain = probe(os.environ)
        if certain:
            with suppress(OSError):  # then the next process tests again
                file.parent.mkdir(parents=True, exist_ok=True)
                write_json(file, {"problem": verdict}, durable=False)
    if verdict:
        advice = "Use float32, the default on a CPU."
        if ISA not in os.environ and not probe({**os.environ, ISA: SAFE_ISA})[0]:
            advice = f"With {ISA}={SAFE_ISA} in the environment it does; or use float32, the default on a CPU."
        raise UsageError(f"bfloat16 does not work on this CPU: {verdict}. {advice}")


def probe(environ: os._Environ[str] | dict[str, str]) -> tuple[str, bool]:
    """What is wrong with bfloat16, empty when it works; and whether the result may be stored."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=dict(environ), capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it could not be tried ({error})", False
    if done.returncode < 0:
        return f"its products end the process ({signal.Signals(-done.returncode).name})", True
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["the trial failed"])[-1], "AssertionError" in done.stderr
    return "", True


def _machine() -> str:
    """A short name for this CPU, torch and oneDNN setting."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        cpu = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        cpu = [platform.processor()]
    known = [*cpu, platform.machine(), platform.release(), torch.__version__, os.environ.get(ISA, "")]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
