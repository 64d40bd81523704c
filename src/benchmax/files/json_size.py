"""How much a JSON text unfolds into: sixty megabytes of `[{},{},…]` are two gigabytes of objects.

Values are counted before the text is parsed, by the characters that begin or separate them. Those inside strings count
too, so the limits are generous.
"""

from __future__ import annotations

import math

MOST_CONTAINERS = 1_000_000
"""Objects and lists, of some hundred bytes each."""
MOST_VALUES = 6_000_000
"""Of some sixty bytes each."""


class Count:
    """Counts a text that comes in pieces."""

    def __init__(self, most_bytes: float = math.inf) -> None:
        self._containers = self._values = self._bytes = 0
        self._most_bytes = most_bytes

    def add(self, piece: bytes) -> bool:
        """Count another piece; returns whether a limit is exceeded."""
        self._bytes += len(piece)
        self._containers += piece.count(b"{") + piece.count(b"[")
        self._values += piece.count(b",")
        too_many = self._containers > MOST_CONTAINERS or self._values > MOST_VALUES
        return too_many or self._bytes > self._most_bytes


def too_many(content: bytes) -> bool:
    """Whether a whole text has more values than the limits allow."""
    return Count().add(content)
