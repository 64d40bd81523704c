"""The Python interpreters of this machine, also those that are not on the PATH."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmax.bundle.errors import IncompatiblePythonError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The minor version of the running interpreter, such as "3.12"."""

_PLACES = (
    "{pyenv}/versions/{minor}.*/bin",
    "{uv}/*-{minor}.*/bin",
    "{home}/.local/share/mise/installs/python/{minor}*/bin",
    "{home}/.asdf/installs/python/{minor}.*/bin",
    "{home}/.rye/py/*{minor}.*/bin",
    "{home}/*conda3/envs/*/bin",
    "{home}/*conda3/bin",
    "{home}/miniforge3/envs/*/bin",
    "{home}/.local/bin",
    "{base}/bin",
    "{base}/../*/bin",
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/*/bin",
    "/opt/python/*/bin",
    "/opt/*/bin",
    "/opt/homebrew/bin",
    "{brew}/opt/python@{minor}/bin",
    "/Library/Frameworks/Python.framework/Versions/{minor}/bin",
)
"""Folders that installers of Python use; `base` is where the running one is."""


def interpreters(minor: str) -> list[Path]:
    """Files named like a Python of this minor version, the likeliest first."""
    if minor == HERE:
        return [Path(sys.executable)]
    known = {
        "minor": glob.escape(minor),
        "home": glob.escape(str(Path.home())),
        "pyenv": glob.escape(os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")),
        "uv": glob.escape(os.environ.get("UV_PYTHON_INSTALL_DIR") or str(Path.home() / ".local/share/uv/python")),
        "brew": glob.escape(os.environ.get("HOMEBREW_PREFIX") or "/opt/homebrew"),
        "base": glob.escape(sys.base_prefix),
    }
    patterns = [f"{place.format(**known)}/python{glob.escape(minor)}" for place in _PLACES]
    found = [shutil.which(f"python{minor}"), *(file for each in patterns for file in sorted(glob.glob(each)))]
    return [Path(file) for file in dict.fromkeys(found) if file and os.access(file, os.X_OK)]


def find_interpreter(minor: str) -> Path:
    """A Python of this minor version: the running one, one on the PATH, or one where installers put them."""
    for candidate in interpreters(minor):
        if minor == HERE or _version_of(candidate) == minor:
            return candidate
    raise IncompatiblePythonError(
        f"The bundle was made with Python {minor}, and there is no python{minor} on the PATH or where installers put "
        f"it; this is Python {HERE}. Install Python {minor}, or pack the environment again with Python {HERE}."
    )


def _version_of(interpreter: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-I", "-c", code], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
