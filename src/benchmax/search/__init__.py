"""Searching text: documents in a file of their own, found by their words. Environments and the platform use it.

index            opening an index and searching it: start here; memory_index: one without a file
build            making one from a folder of texts or a MediaWiki dump; writer: the file while it is built
schema           its tables; types: documents, hits, and the ports of an index
sources          folders and dumps, as plain text
open_corpus      opening an index by a name: a file, a folder, `platform:CORPUS`, or what an installed package adds
platform_corpus  a corpus of the platform, searched over HTTP
fts_query        a query as SQLite takes it; filters: conditions on metadata; snippet, passages: parts of a text

It knows nothing of environments, models or rewards.
"""

from benchmax.search.build import build_index
from benchmax.search.index import Index, open_index
from benchmax.search.memory_index import MemoryIndex
from benchmax.search.open_corpus import open_corpus
from benchmax.search.types import ChunkSource, Document, Hit, SearchClient

__all__ = [
    "ChunkSource",
    "Document",
    "Hit",
    "Index",
    "MemoryIndex",
    "SearchClient",
    "build_index",
    "open_corpus",
    "open_index",
]
