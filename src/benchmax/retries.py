"""Retries: how long to wait before the next attempt.

    await asyncio.sleep(pause(attempt, first=0.5, longest=8.0, asked=retry_after(response.headers)))

The caller decides how often and for how long to try: every retry in benchmax has such a budget. A module of its own
instead of a package such as stamina, because it only computes pauses; loops, deadlines and errors differ by caller.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that cannot answer now."""
TEMPORARY = frozenset({408, 409, 425})
"""Statuses of a request that may be accepted when it is sent again."""

# A separate generator, so that seeds set by callers are not affected.
_random = random.Random()
_EXTRA_SHARE = 0.03
"""Share added to a pause that a server asked for, so that clients refused together do not return together."""


def pause(attempt: int, first: float, longest: float, asked: float | None = None, *, growth: float = 2.0) -> float:
    """Seconds to wait after attempt number `attempt` (from 1): what the server asked for, or a random part, at least
    half, of a span that grows from `first` to `longest`."""
    if asked:
        return asked * _random.uniform(1.0, 1.0 + _EXTRA_SHARE)
    span = min(longest, first * growth ** min(attempt - 1, 60))
    return _random.uniform(span / 2, span)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The pause a server asks for, in seconds: a number, or the time until a date."""
    value = headers.get("Retry-After")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
