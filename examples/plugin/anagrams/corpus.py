"""A corpus: `dictionary:` has a text for each word, `dictionary:5` for each word of five letters."""

from anagrams.environment import WORDS
from benchmax.search import Document, MemoryIndex


def open_corpus(address: str) -> MemoryIndex:
    words = [word for word in WORDS if address in ("", str(len(word)))]
    return MemoryIndex(Document(id=word, title=word, content=f"{word}: {len(word)} letters") for word in words)
