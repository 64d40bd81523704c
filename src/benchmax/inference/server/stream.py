"""Text out of tokens while they come.

Text that might have to be taken back is held back: the bytes of an unfinished character, the beginning of a stop
string, the beginning of a tool call.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.inference.tokens.chat import ChatTokens
from benchmax.prompts.tools import OPEN_TAG

_WINDOW = 64
_OVERLAP = 8


class TextStream:
    """The text of one reply, released piece by piece."""

    def __init__(self, chat: ChatTokens, stops: Sequence[str] = (), *, tools: bool = False) -> None:
        self._chat = chat
        self._ends = [stop for stop in stops if stop] + [OPEN_TAG] * tools
        self._tools = tools
        self._window: list[int] = []
        self._decoded = ""
        self._held = ""
        self._ended = False
        self.shown = ""

    def push(self, ids: Sequence[int]) -> str:
        """Take new ids; returns the text that is now certain."""
        if self._ended:
            return ""
        self._held += self._decode(ids)
        found = [at for end in self._ends if (at := self._held.find(end)) >= 0]
        if found:
            self._ended = True
            return self._show(min(found))
        return self._show(len(self._held) - self._uncertain())

    def finish(self, content: str) -> str:
        """The rest of the reply, whose whole text is `content`."""
        return content[len(self.shown) :] if content.startswith(self.shown) else ""

    def _decode(self, ids: Sequence[int]) -> str:
        self._window += [token for token in ids if not self._chat.controls([token])]  # they have no text
        if not self._window or self._window[-1] in self._chat.byte_ids:
            return ""
        before, self._decoded = self._decoded, self._certain_text()
        new = self._decoded[len(before) :]
        if len(self._window) > _WINDOW:
            # Decoding the whole reply for every token would be quadratic.
            self._window = self._window[-_OVERLAP:]
            self._decoded = self._certain_text()
        return new

    def _certain_text(self) -> str:
        """The window's text, without a last character that stands for the first bytes of an unfinished one."""
        return self._chat.decode(self._window).removesuffix("\ufffd")

    def _uncertain(self) -> int:
        """Characters at the end that may still turn out to be something else."""
        longest = max((_begun(self._held, end) for end in self._ends), default=0)
        if self._tools:  # the space before a call belongs to the call
            longest = len(self._held) - len(self._held[: len(self._held) - longest].rstrip())
        return longest

    def _show(self, length: int) -> str:
        piece, self._held = self._held[:length], self._held[length:]
        if self._ended and self._tools:
            piece = piece.rstrip()
        if self._tools and not self.shown:
            piece = piece.lstrip()
        self.shown += piece
        return piece


def _begun(text: str, end: str) -> int:
    """How many of the first characters of `end`, which is not in the text, the text ends with."""
    lengths = range(min(len(text), len(end) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(end[:length])), 0)
