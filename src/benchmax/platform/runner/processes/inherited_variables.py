"""Which of the runner's environment variables the processes of a run see."""

from __future__ import annotations

import os
from collections.abc import Mapping

from benchmax.envs.remote.process_limits import PASSED_ON

_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "GOMP_", "MKL_", "KMP_", "ONEDNN_", "PYTORCH_", "PIP_", "UV_")
_NAMES = PASSED_ON | {
    "BENCHMAX_HOME",
    "BENCHMAX_ENV_MEMORY",
    "BENCHMAX_SANDBOX_INSIST",
    "BENCHMAX_SANDBOX_READ",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "PYENV_ROOT",
    "TINKER_BASE_URL",
}


def inherited_variables(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where things are, never a key, and what is set for this run (`extra`)."""
    kept = {name: value for name, value in os.environ.items() if name in _NAMES or name.startswith(_PREFIXES)}
    # An environment that uses the SDK must not start a platform of its own.
    return {**kept, "PYTHONUNBUFFERED": "1", "BENCHMAX_NO_AUTO_START": "1", **(extra or {})}
