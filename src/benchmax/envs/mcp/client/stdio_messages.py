"""Reads messages leniently, as servers write them: lines of output, and bodies and events over HTTP.

A line may begin with a byte order mark, or with output that was printed before without a newline; it may contain a list
of messages; ids may be texts or fractions. Any other line is not a message.
"""

from __future__ import annotations

import json
import re
from typing import Any

_BEGIN = b'{"jsonrpc"'
_ID = re.compile(rb'"id"\s*:\s*"?(\d{1,15})\b')
_NEAR_BYTES = 256
"""How much of a line's start and end is searched for an id when the line cannot be parsed."""


class Unreadable(ValueError):
    """A message that is not valid JSON, or nested too deep."""

    def __init__(self, number: int | None) -> None:
        super().__init__("unreadable message")
        self.number = number


def messages_in(line: bytes) -> list[dict[str, Any]]:
    """The messages of a line: usually one, none when it is something else."""
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
    """The id of the request that a message answers, also when it is a text or a fraction."""
    number = message.get("id")
    if isinstance(number, str) and number.isascii() and number.isdigit():
        return int(number)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
