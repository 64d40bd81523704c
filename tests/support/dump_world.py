"""For tests of indexes: MediaWiki dumps of generated articles."""

from __future__ import annotations

import bz2
from collections.abc import Iterable
from html import escape
from pathlib import Path


def page(title: str, text: str, ns: int = 0) -> str:
    return (
        f"<page>\n<title>{escape(title)}</title><ns>{ns}</ns><id>1</id><revision><id>1</id>"
        f'<text xml:space="preserve">{escape(text)}</text></revision>\n</page>\n'
    )


def redirect(title: str, target: str) -> str:
    return (
        f'<page><title>{escape(title)}</title><ns>0</ns><redirect title="{escape(target)}" />'
        "<revision><text>#REDIRECT</text></revision></page>\n"
    )


def articles(count: int) -> list[str]:
    """Article number n holds the word `wordn`, and `common`."""
    return [page(f"Article {number}", f"A common text with word{number}. " * 20) for number in range(count)]


def write_dump(path: Path, pages: Iterable[str], per_stream: int = 10) -> Path:
    """A dump; with the ending .bz2 made of many streams, as those of Wikipedia are."""
    head, tail = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n', "</mediawiki>\n"
    parts = list(pages)
    if path.suffix != ".bz2":
        path.write_text(head + "".join(parts) + tail, "utf-8")
        return path
    streams = [head, *("".join(parts[at : at + per_stream]) for at in range(0, len(parts), per_stream)), tail]
    path.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
    return path
