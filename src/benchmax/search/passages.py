"""A long text as passages: whole paragraphs as long as they fit, then lines, then sentences, then words."""

from __future__ import annotations

from collections.abc import Iterator

from benchmax.search.types import Document

_BORDERS = ("\n\n", "\n", ". ", " ")


def split_text(text: str, chars: int) -> list[str]:
    """Passages of at most `chars` characters that together are the text, less the space between them."""
    return [piece for part in _pieces(text, chars, 0) if (piece := part.strip())]


def passages(document: Document, chars: int) -> Iterator[Document]:
    """The document itself when it fits; else its passages, with ids that say their place: `id#1`, `id#2`."""
    pieces = split_text(document.content, chars)
    if len(pieces) <= 1:
        yield document
        return
    for number, piece in enumerate(pieces, 1):
        metadata = {**document.metadata, "source_id": document.id, "passage": number}
        yield Document(f"{document.id}#{number}", document.title, piece, metadata)


def _pieces(text: str, chars: int, level: int) -> list[str]:
    if len(text) <= chars:
        return [text]
    if level == len(_BORDERS):
        return [text[at : at + chars] for at in range(0, len(text), chars)]
    joined = list[str]()
    for part in _parts(text, _BORDERS[level]):
        if joined and len(joined[-1]) + len(part.rstrip()) <= chars:
            joined[-1] += part
        else:
            joined.append(part)
    return [piece for part in joined for piece in _pieces(part.rstrip(), chars, level + 1)]


def _parts(text: str, border: str) -> list[str]:
    """The text cut behind every border."""
    *parts, last = text.split(border)
    return [*(part + border for part in parts), last]
