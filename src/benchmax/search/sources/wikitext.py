"""Wikitext as plain text, by hand: parsers of the whole language read a megabyte a second, and a dump has a hundred
thousand of them.

Covered: templates, tables, references, comments, links, files and categories, headings, lists, bold, HTML tags,
entities; of templates, those that only set a text (`lang`, `nowrap`) or a measure (`convert`). Not covered: everything
else a template would have written. Time grows with the text, also for text made to be slow.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from benchmax.search.sources.plain_text import tidy

_HEADING = re.compile(r"^(={1,6})[ \t]*(.*?)[ \t]*\1[ \t]*$", re.MULTILINE)
_SECTION = re.compile(r"^(?==)", re.MULTILINE)
_BRACES = re.compile(r"\{\{|\}\}|^[ \t]*\{\||^[ \t]*\|\}(?!\})", re.MULTILINE)
_BRACKETS = re.compile(r"\[\[|\]\]")
_SET_TEXT = re.compile(
    r"\{\{[ \t]*(?:lang|nowrap|nobr|transl)[ \t]*\|(?:[^{}|=\n]{1,20}\|)?([^{}|\n]*)\}\}", re.IGNORECASE
)
_MEASURE = re.compile(r"\{\{[ \t]*(?:convert|cvt)[ \t]*\|([^{}|\n]*)\|([^{}|\n]*)[^{}\n]*\}\}", re.IGNORECASE)
_WEB_LINK = re.compile(r"\[(?:https?:)?//[^\s\[\]]*[ \t]*([^\[\]\n]*)\]")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,500}>")
_QUOTES = re.compile(r"'{2,5}")
_LIST = re.compile(r"^[*#:;]+[ \t]*", re.MULTILINE)
_MAGIC = re.compile(r"__[A-Z]{3,30}__")
_EMPTY_BRACKETS = re.compile(r" ?\([\s,;]*\)")
_DROPPED_TAG = re.compile(
    r"<(ref|math|gallery|timeline|score|syntaxhighlight|source|templatestyles|imagemap)\b[^<>]*>", re.IGNORECASE
)
_DROPPED_LINKS = ("file:", "image:", "category:", "media:")


def plain(text: str) -> str:
    """The text a reader would see, about."""
    text = _without_dropped_tags(_without_pairs(text, "<!--", "-->"))
    text = _MEASURE.sub(r"\1 \2", _SET_TEXT.sub(r"\1", text))
    text = "".join(part for section in _SECTION.split(text) for part in _outside_braces(section))
    text = _WEB_LINK.sub(r"\1", _links(text))
    text = _HEADING.sub(r"\2", _MAGIC.sub("", _TAG.sub("", text)))
    return tidy(_EMPTY_BRACKETS.sub("", html.unescape(_LIST.sub("", _QUOTES.sub("", text)))))


def _without_pairs(text: str, opener: str, closer: str) -> str:
    kept, at = list[str](), 0
    while (start := text.find(opener, at)) >= 0 and (end := text.find(closer, start + len(opener))) >= 0:
        kept.append(text[at:start])
        at = end + len(closer)
    return "".join([*kept, text[at:]]) if kept or at else text


def _without_dropped_tags(text: str) -> str:
    """Without `<ref …>…</ref>`, `<ref …/>` and their like."""
    kept, at, unclosed = list[str](), 0, set[str]()
    for found in _DROPPED_TAG.finditer(text):
        if found.start() < at:
            continue
        kept.append(text[at : found.start()])
        at, tag = found.end(), found[1].lower()
        if tag in unclosed or found[0].endswith("/>"):
            continue
        end = re.compile(rf"</{tag}[ \t]*>", re.IGNORECASE).search(text, at)
        if end is None:
            unclosed.add(tag)  # there is no more of them: they are not looked for again
        else:
            at = end.end()
    return "".join([*kept, text[at:]])


def _outside_braces(text: str) -> Iterator[str]:
    """What is outside templates and tables. An opener that is never closed takes the rest of its section with it."""
    depth = at = 0
    for found in _BRACES.finditer(text) if "{" in text else ():
        if depth == 0:
            yield text[at : found.start()]
        opens = found[0].endswith(("{{", "{|"))
        depth = depth + 1 if opens else max(0, depth - 1)
        at = found.end()
    if depth == 0:
        yield text[at:]


def _links(text: str) -> str:
    """Links as the text that is shown for them; files and categories, with all in them, as nothing."""
    open_links: list[list[str]] = []
    said: list[str] = []
    at = 0
    for found in _BRACKETS.finditer(text):
        (open_links[-1] if open_links else said).append(text[at : found.start()])
        at = found.end()
        if found[0] == "[[":
            open_links.append([])
        elif open_links:
            inner = "".join(open_links.pop())
            (open_links[-1] if open_links else said).append(_shown(inner))
    rest = [part for link in open_links for part in link]
    return "".join([*said, *rest, text[at:]])


def _shown(link: str) -> str:
    target, bar, shown = link.partition("|")
    if target.strip().lower().startswith(_DROPPED_LINKS):
        return ""
    return shown.rpartition("|")[2] if bar else target.lstrip(":")
