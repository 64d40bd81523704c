"""Values that models, environments and trainers wrote, made fit for a database and for JSON.

Text may hold half characters and zero bytes, numbers may be infinite or have a thousand digits.
"""

from __future__ import annotations

import math
from typing import Any

from benchmax.files.redaction import hide_texts

_MOST_INTEGER = 2**31 - 1


def clean(text: str, chars: int | None = None) -> str:
    """The text with what cannot be stored replaced, cut to `chars`."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "\ufffd")[:chars]


def clean_json(value: Any) -> Any:
    """A JSON value with every text in it clean."""
    return hide_texts(value, clean)


def finite(value: Any) -> float | None:
    """The number as a float; None for what is no finite number."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None


def checked_float(value: Any) -> float:
    """The number as a float; ValueError for what is no finite number."""
    found = finite(value)
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} is no finite number")
    return found


def fits_integer(value: Any) -> bool:
    """Whether an integer column can hold the value."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_INTEGER


def checked_integer(value: Any) -> int:
    """The value; ValueError unless an integer column can hold it."""
    if not fits_integer(value):
        raise ValueError(f"{str(value)[:40]!r} is no integer of 32 bits")
    return int(value)
