"""The SHA-256 of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def file_sha256(*paths: Path) -> str:
    """The SHA-256 of a file, or of the contents of several, one after the other."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: found)
    return found.hexdigest()
