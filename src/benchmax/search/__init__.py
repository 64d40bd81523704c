"""Searching text: documents in a file of their own, found by their words. Environments and the platform use it.

index        opening an index and searching it: start here
build        making one from a folder of texts or a MediaWiki dump
feeds, dump  the sources: files, and pages cut out of a dump; compressed reads it, wikitext and plain_text make it text
writer       the file while it is built; schema: its tables
corpora      opening an index by a name, `NAME:address`, also one that an installed package adds
query        words of a query; filters: conditions on metadata; snippet, passages: parts of a text
factbook     a corpus of countries: the World Factbook of 2015, or invented countries where it was not fetched

It knows nothing of environments, models or rewards.
"""

from benchmax.search.build import build_index
from benchmax.search.corpora import open_corpus
from benchmax.search.index import Index, open_index
from benchmax.search.types import ChunkSource, Document, Hit, SearchClient

__all__ = ["ChunkSource", "Document", "Hit", "Index", "SearchClient", "build_index", "open_corpus", "open_index"]
