"""What a child process gets: few environment variables, limits, and what its sandbox leaves it of the machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import benchmax
from benchmax import plugins
from benchmax.package_folders import package_folders
from benchmax.sandbox import Network

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


@dataclass(frozen=True, slots=True)
class Confinement:
    """A sandbox for the process: it reads the system, its interpreter and its bundle, and writes its own folder."""

    read: tuple[str, ...] = ()
    """Paths it may read besides."""
    network: Network = "host"
    closed_ports: tuple[int, ...] = ()
    """TCP ports it cannot connect to, on any address: those of the platform."""
    insist: bool | None = None
    """Whether to start with what guards there are where the machine lacks some; None as the user's setting says."""


def code_paths(python: str) -> tuple[str, ...]:
    """What a sandboxed process imports: benchmax, its packages and plug-ins, which are lent to venvs, and its
    interpreter's own.

    The interpreter is not run to find out: with untrusted packages it would run their code outside the sandbox. What a
    virtual environment's files claim is not trusted either.
    """
    lent = (
        str(Path(benchmax.__file__).parents[1]),
        sys.prefix,
        sys.base_prefix,
        *package_folders(),
        *plugins.source_paths(),
    )
    path = Path(shutil.which(python) or python).absolute()
    venv = path.parents[1]
    return (*lent, str(venv if (venv / "pyvenv.cfg").exists() else path.resolve().parents[1]))
