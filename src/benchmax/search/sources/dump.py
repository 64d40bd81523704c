"""The articles of a MediaWiki dump (`pages-articles.xml`, also as .bz2), one at a time.

A dump is too large for a parser that keeps what it read. Pages are cut out of the stream of bytes, in which `<page>`
cannot stand for anything else, and each is parsed alone: so memory is bounded by the largest page, and reading goes on
from any page's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmax import limits
from benchmax.search.sources.compressed import ByteStream, Restart
from benchmax.search.sources.feeds import Entry
from benchmax.search.sources.wikitext import plain
from benchmax.search.types import Document

_OPEN, _CLOSE = b"<page>", b"</page>"


@dataclass(slots=True)
class DumpFeed:
    """The articles and redirects of a dump."""

    path: Path
    updates: bool = False
    skipped: int = 0
    total: int = field(init=False)
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        self.total = self.path.stat().st_size
        self.identity = f"dump {self.path.name} {self.total}"

    def entries(self, place: Mapping[str, Any], stamps: Mapping[str, str]) -> Iterator[Entry]:
        offset = int(place.get("offset", 0))
        stream = ByteStream(self.path, Restart(*place.get("restart", (0, 0))), offset)
        for page, end in self._pages(stream, offset):
            document, redirect = self._read(page)
            if document or redirect:
                after = {"offset": end, "restart": list(stream.restart_before(end))}
                yield Entry(after, stream.position, document, redirect)

    def _pages(self, stream: ByteStream, offset: int) -> Iterator[tuple[bytes, int]]:
        """Each page, and where in the content it ends."""
        held = bytearray()
        looked = 0  # up to here there is no closing tag
        for data in stream:
            held += data
            while (end := held.find(_CLOSE, looked)) >= 0:
                end += len(_CLOSE)
                start = held.find(_OPEN, 0, end)
                offset += end
                if start >= 0:
                    yield bytes(held[start:end]), offset
                del held[:end]
                looked = 0
            looked = max(0, len(held) - len(_CLOSE))
            if len(held) > limits.INDEX_FILE_BYTES:
                # Too large for an article: what is held is dropped, and the page is skipped.
                self.skipped += 1
                offset += looked
                del held[:looked]
                looked = 0

    def _read(self, page: bytes) -> tuple[Document | None, tuple[str, str] | None]:
        try:
            root = ElementTree.fromstring(page)
        except ElementTree.ParseError:
            self.skipped += 1
            return None, None
        title = (root.findtext("title") or "").strip()
        if not title or root.findtext("ns", "0") != "0":
            return None, None
        target = root.find("redirect")
        if target is not None:
            return None, (title, target.get("title", ""))
        revisions = root.findall("revision/text")
        text = plain(revisions[-1].text or "") if revisions else ""
        return Document(title, title, text), None
