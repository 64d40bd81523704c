"""What servers say, read as leniently as they are written: lines of output, bodies and events over HTTP.

A line may begin with a byte order mark, or with what was printed before without a line's end; hold several messages as
a list; or number its answers with texts and fractions. Whatever else a server prints is no message.
"""

from __future__ import annotations

import json
import re
from typing import Any

_BEGIN = b'{"jsonrpc"'
_ID = re.compile(rb'"id"\s*:\s*"?(\d{1,15})\b')
_NEAR_BYTES = 256
"""Of the ends of a line, in which its id is looked for when it cannot be read."""


class Unreadable(ValueError):
    """A message that is not JSON, or too deep to be read."""

    def __init__(self, number: int | None) -> None:
        super().__init__("unreadable message")
        self.number = number


def messages_in(line: bytes) -> list[dict[str, Any]]:
    """The messages of a line: most often one, and none when it is something else."""
    text = line.strip(b" \t\r\n\xef\xbb\xbf")
    if not text.startswith((b"{", b"[")):
        begin = text.find(_BEGIN)
        if begin < 0:
            return []
        text = text[begin:]
    try:
        found = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        if b'"jsonrpc"' not in text[:_NEAR_BYTES]:
            return []
        match = _ID.search(text[:_NEAR_BYTES]) or _ID.search(text[-_NEAR_BYTES:])
        raise Unreadable(int(match[1]) if match else None) from None
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]


def number_of(message: dict[str, Any]) -> int | None:
    """Which request a message answers; servers may have made its number a text or a fraction."""
    number = message.get("id")
    if isinstance(number, str) and number.isascii() and number.isdigit():
        return int(number)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
