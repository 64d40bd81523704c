"""Text out of tokens while they come.

Text that might have to be taken back is held back: the bytes of an unfinished character, the beginning of a stop
string, the beginning of a tool call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from benchmax.inference.tokens.chat import ChatTokens
from benchmax.prompts.tools import OPEN_TAG

_WINDOW = 64
_OVERLAP = 8


class TextStream:
    """The text of one reply, released piece by piece."""

    def __init__(self, chat: ChatTokens, stops: Sequence[str] = (), *, tools: bool = False) -> None:
        self._chat = chat
        self._ends = [stop for stop in stops if stop] + [OPEN_TAG] * tools
        self._matchers = [_PrefixMatcher(end) for end in self._ends]
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
        new = self._decode(ids)
        self._held += new
        found = [at for end in self._ends if (at := self._held.find(end)) >= 0]
        if found:
            self._ended = True
            return self._show(min(found))
        for matcher in self._matchers:
            matcher.push(new)
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
        longest = max((matcher.length for matcher in self._matchers), default=0)
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


class _PrefixMatcher:
    """How much of a text's end is a prefix of `whole`, found in time linear in the text (Knuth, Morris, Pratt)."""

    def __init__(self, whole: str) -> None:
        self._whole = whole
        self._shorter = _borders(whole)
        self.length = 0

    def push(self, text: str) -> None:
        """Continue the text, which does not contain `whole`."""
        for character in text:
            self.length = _longer(self._whole, self._shorter, self.length, character)


@lru_cache(maxsize=256)
def _borders(whole: str) -> list[int]:
    """For each prefix of `whole`, the longest shorter one that it ends with."""
    borders = [0]
    for character in whole[1:]:
        borders.append(_longer(whole, borders, borders[-1], character))
    return borders


def _longer(whole: str, borders: Sequence[int], length: int, character: str) -> int:
    """How long the prefix at a text's end is after one more character."""
    while length and whole[length] != character:
        length = borders[length - 1]
    return length + (whole[length] == character)
