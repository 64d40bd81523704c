"""Files as plain text with a title: text, Markdown and HTML."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser
from pathlib import PurePath
from typing import NamedTuple

MARKDOWN = frozenset({".md", ".mdx", ".markdown"})
HTML = frozenset({".html", ".htm"})
ENDINGS = frozenset({".txt", ".text", ".rst"}) | MARKDOWN | HTML
"""Of files that are read."""
_HEADING = re.compile(r"^#{1,2}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_SPACE = re.compile(r"[ \t\xa0]+")
_MARKED_SECTION = re.compile(r"<!\[+(?!CDATA\[)")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_HIDDEN_TAGS = frozenset({"script", "style", "noscript", "template", "svg"})
_BLOCK_TAGS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer", "form", "h1", "h2",
    "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "tr",
    "ul",
})  # fmt: skip


class PlainText(NamedTuple):
    title: str
    content: str


def decoded(data: bytes) -> str:
    """The text of a file in UTF-8, in UTF-16 with its mark, or else in the Western encoding of Windows."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return data.decode("utf-16", "replace")
    text = data.decode("utf-8-sig", "replace")
    if "\ufffd" not in text or any(letter > "\x7f" and letter != "\ufffd" for letter in text):
        return text  # what else it holds is UTF-8: a few bytes are broken
    return data.decode("cp1252", "replace")


def read_text(name: str, text: str) -> PlainText:
    """The text of a file, by the ending of its name; its title is its first heading, or its name."""
    path = PurePath(name)
    ending = path.suffix.lower()
    if ending in HTML:
        title, content = strip_html(text)
    else:
        heading = _HEADING.search(text) if ending in MARKDOWN else None
        title, content = heading[1] if heading else "", text.strip()
    return PlainText(title or path.stem.replace("_", " "), content)


def strip_html(text: str) -> PlainText:
    """What a page says: its title, and its text without tags, scripts and styles."""
    reader = _Reader()
    reader.feed(_MARKED_SECTION.sub("<!", text))  # as a browser does: HTMLParser raises at a section of unknown name
    reader.close()
    return PlainText(" ".join("".join(reader.title).split()), tidy("".join(reader.text)))


def tidy(text: str) -> str:
    """Without needless space: no blank lines in a row, no space at the ends of lines."""
    lines = (_SPACE.sub(" ", line).strip() for line in text.splitlines())
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.title: list[str] = []
        self._hidden = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._in_title |= tag == "title"
        self._hidden += tag in _HIDDEN_TAGS
        if tag in _BLOCK_TAGS:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._in_title &= tag != "title"
        self._hidden = max(0, self._hidden - (tag in _HIDDEN_TAGS))
        if tag in _BLOCK_TAGS:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title and not self.title:
            self.title.append(data)
        elif not self._hidden:
            self.text.append(data)
