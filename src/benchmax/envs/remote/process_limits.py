"""What a child process gets: few environment variables, and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

PASSED_ON = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "BENCHMAX_NO_AUTO_START", "BENCHMAX_RUN_DIR",
    }
)  # fmt: skip
"""Variables that a child process inherits; keys and database addresses are not among them."""


def scrubbed_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of this process that a child may have, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}
    return {**kept, **(extra or {})}


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one process may use."""

    memory_bytes: int | None = None
    """Private memory. An allocation beyond it fails in the environment, with the limit in the message."""
    open_files: int = 4096
    nice: int = 0


def readable_bytes(size: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} bytes"
