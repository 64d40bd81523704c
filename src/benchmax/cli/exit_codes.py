"""The exit codes of commands."""

from __future__ import annotations

FAILED = 1
"""It ran, and the answer is no."""
USAGE = 2
NOT_FOUND = 3
AUTH = 4
"""Not signed in, or the key may not do this."""
INTERRUPTED = 130
