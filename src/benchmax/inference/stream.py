"""Text out of tokens while they come.

Nothing is shown that might have to be taken back: the bytes of an unfinished character, the beginning of
a stop string, the beginning of a tool call.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.inference.tokens import ChatTokens
from benchmax.prompts.tools import OPEN_TAG

_WINDOW = 64
_OVERLAP = 8


class TextStream:
    """The text of one reply, let out piece by piece."""

    def __init__(self, chat: ChatTokens, stops: Sequence[str] = (), *, tools: bool = False) -> None:
        self._chat = chat
        self._ends = [*stops, OPEN_TAG] if tools else list(stops)
        self._tools = tools
        self._window: list[int] = []
        self._decoded = ""
        self._held = ""
        self._ended = False
        self.shown = ""

    def push(self, ids: Sequence[int]) -> str:
        """Take new ids; gives the text that is now certain."""
        self._held += self._decode(ids)
        if self._ended:
            return ""
        found = [at for end in self._ends if (at := self._held.find(end)) >= 0]
        if found:
            self._ended = True
            return self._show(min(found))
        return self._show(len(self._held) - self._uncertain())

    def finish(self, content: str) -> str:
        """The rest of the reply, whose whole text is `content`."""
        for shown in (self.shown, self.shown.lstrip()):
            if content.startswith(shown):
                return content[len(shown) :]
        return ""

    def _decode(self, ids: Sequence[int]) -> str:
        self._window += ids
        text = self._chat.decode(self._window)
        whole = text.rstrip("\ufffd")
        if len(text) - len(whole) > _OVERLAP:
            whole = text  # no unfinished character: the model wrote broken bytes
        new = whole[len(self._decoded) :]
        self._decoded = max(whole, self._decoded, key=len)
        if whole == text and len(self._window) > _WINDOW:
            # Decoding the whole reply for every token would be quadratic.
            self._window = self._window[-_OVERLAP:]
            self._decoded = self._chat.decode(self._window)
        return new

    def _uncertain(self) -> int:
        """Characters at the end that may still turn out to be something else."""
        text = self._held
        longest = 0
        for end in self._ends:
            longest = max(longest, *(n for n in range(len(end)) if text.endswith(end[:n])))
        if self._tools:  # a call that follows takes the space before it along
            certain = len(text[: len(text) - longest].rstrip())
            longest = len(text) - certain
        return longest

    def _show(self, length: int) -> str:
        piece, self._held = self._held[:length], self._held[length:]
        if self._ended and self._tools:
            piece = piece.rstrip()
        self.shown += piece
        return piece
