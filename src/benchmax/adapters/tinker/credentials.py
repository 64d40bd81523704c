"""Whether a run on Tinker could begin: its package is installed, and there is a key. Nothing of Tinker is imported."""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

from benchmax.adapters.tinker import ADAPTER
from benchmax.errors import UsageError

KEY = ADAPTER.secrets[0]
CREDENTIALS = Path("~/.tinker/credentials.json")
"""Where `tinker auth login` keeps a key."""


def check_installed() -> None:
    """Raise UsageError in one line unless the package is there."""
    if find_spec("tinker") is None:
        raise UsageError(f"Tinker's package is not installed. Run: pip install '{ADAPTER.pin}'")


def check_here() -> None:
    """Raise UsageError in one line unless the package and a key are there for this process."""
    check_installed()
    known = os.environ.get(KEY) or os.environ.get("TINKER_CREDENTIAL_CMD") or CREDENTIALS.expanduser().is_file()
    if not known:
        raise UsageError(f"Tinker needs an API key. Set {KEY}, or run: tinker auth login")


def check_launch(secrets: Collection[str]) -> None:
    """Raise UsageError in one line unless a run of the platform with these secrets could begin."""
    check_installed()
    if KEY not in secrets:
        raise UsageError(
            f"Tinker needs an API key, as a secret of yours or of this launch. Run: benchmax secrets set {KEY}"
        )
