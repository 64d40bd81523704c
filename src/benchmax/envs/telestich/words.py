"""Words to spell and to write poems with, from `words.toml`, and which words are English."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from benchmax import extras

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
SHORT, LONG = tuple(_WORDS["short"].split()), tuple(_WORDS["long"].split())
THEMES, MIDDLE = tuple(_WORDS["themes"]), tuple(_WORDS["middle"])
FIRST: dict[str, str] = _WORDS["first"]
"""Words that begin with each letter."""
LAST: dict[str, str] = _WORDS["last"]
"""Words that end with each letter."""
SMALL = frozenset(_WORDS["small"].split())
"""Words that any poem may say again and again."""
FILES = ("words3to10.txt", "holdout_words.txt", "words.csv")
_ENDINGS = ("'s", "ies", "es", "s", "ed", "d", "ing", "ly", "er", "est")


@lru_cache(maxsize=1)
def dictionary() -> frozenset[str]:
    """English words of three to ten letters, from reasoning-gym's data, and those that stand here."""
    extras.require("The telestich environment", "envs")
    spec = find_spec("reasoning_gym")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    listed = (word for name in FILES for word in (folder / name).read_text("utf-8").lower().replace(",", " ").split())
    banks = (word for bank in (*FIRST.values(), *LAST.values(), *MIDDLE) for word in bank.split())
    return frozenset((*listed, *banks, *SHORT, *LONG)) | SMALL


@lru_cache(maxsize=50_000)
def is_word(text: str) -> bool:
    """Whether a text is an English word, inflected or not."""
    known = dictionary()
    word = text.lower()
    if "-" in word:
        return all(map(is_word, word.split("-")))
    if word in known:
        return True
    stems = (word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))
    return any(stem in known or f"{stem}y" in known or f"{stem}e" in known for stem in stems if len(stem) > 1)
