"""What a poem is worth by rule: whether its letters spell the word, and what its words are like."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmax.envs.telestich.words import SMALL, is_word

FEWEST_WORDS, MOST_WORDS = 2, 16
"""In a line that counts."""
KNOWN = 0.75
"""Share of a line's words that must be English for it to count."""
MOST_CHARS = 4_000
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")


@dataclass(frozen=True, slots=True)
class Poem:
    """A poem, line by line."""

    lines: Sequence[Sequence[str]]
    """The words of every line that has any."""

    @classmethod
    def read(cls, text: str) -> Poem:
        found = [_WORD.findall(line) for line in text[:MOST_CHARS].splitlines()]
        return cls([words for words in found if words])

    def counts(self, at: int) -> bool:
        """Whether a line is one: some English words, and not a line that was there before."""
        words = [word.lower() for word in self.lines[at]]
        if not FEWEST_WORDS <= len(words) <= MOST_WORDS or len(set(words)) < FEWEST_WORDS:
            return False
        if words in ([word.lower() for word in line] for line in self.lines[:at]):
            return False
        return sum(map(is_word, words)) >= KNOWN * len(words)

    def spelled(self, word: str, *, first: bool, last: bool) -> float:
        """1 when the letters spell the word; at most half for some of them, nothing for another number of lines."""
        if len(self.lines) != len(word):
            return 0.0
        right = [
            self.counts(at)
            and (not first or line[0][0].lower() == letter)
            and (not last or line[-1][-1].lower() == letter)
            for at, (line, letter) in enumerate(zip(self.lines, word.lower(), strict=True))
        ]
        return 1.0 if all(right) else 0.5 * sum(right) / len(right)

    def length(self, lines: int) -> float:
        """1 for the number of lines that was asked for, less for more and for fewer."""
        there = len(self.lines)
        return min(there, lines) / max(there, lines)

    def words(self) -> float:
        """The share of words that are English, times the share that is not said again and again."""
        said = [word.lower() for line in self.lines for word in line]
        if not said:
            return 0.0
        known = sum(map(is_word, said)) / len(said)
        again = sum(count - 2 for word, count in Counter(said).items() if count > 2 and word not in SMALL)
        return known * (1.0 - again / len(said))
