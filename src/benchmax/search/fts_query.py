"""Words of a query, and the FTS5 query for them: any of the words, each quoted.

FTS5 has a language of its own (AND, NEAR, columns, prefixes). What a model or a user writes is never read as that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_WORD = re.compile(r"\w+")
MOST_WORDS = 64
"""Of one query; what follows is not looked for."""
WORD_CHARS = 100


def words_of(query: str) -> list[str]:
    """The distinct words of a query, in order, in small letters."""
    words = (word[0].lower()[:WORD_CHARS] for word in _WORD.finditer(query))
    return list(islice(dict.fromkeys(words), MOST_WORDS))


def any_of(words: Iterable[str]) -> str:
    """The FTS5 query for documents that hold any of the words."""
    return " OR ".join(f'"{word}"' for word in words)
