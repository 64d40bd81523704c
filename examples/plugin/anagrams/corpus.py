"""A corpus: `dictionary:` holds one text per word, found by its words."""

from anagrams.environment import WORDS
from benchmax.search import Document, SearchClient
from benchmax.search.memory_index import MemoryIndex


def open_corpus(address: str) -> SearchClient:
    return MemoryIndex(Document(word, word, f"{word}: a word of {len(word)} letters") for word in WORDS)
