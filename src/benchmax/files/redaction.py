"""Removes secrets from text, by value: as they are, in the encodings of other programs, and in pieces.

A value is found in every form that a log or a message may have it in (JSON, URL, base64 inside a longer text such as
Basic auth, hexadecimal, HTML; upper or lower case), line by line when it has several, with line breaks inserted into
it, and where a limit on the length of a text cut it in two. Characters written by their
number, as URLs, JSON, HTML and Python do, are decoded, twice where one encoding is inside another.

    hide = Redactor([value])
    hide("the key is …")        # the key is [secret]
"""

from __future__ import annotations

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

MARK = "[secret]"
SECRET_CHARS = 6
"""Shorter values are too common in ordinary text to be hidden."""
CODED_CHARS = 8
"""Values of at least this length are also found in other encodings, and in either case."""
PIECE_CHARS = 8
"""The shortest piece of a cut value that is recognised."""
_BROKEN_CHARS = 24
"""Forms of at least this length are also found with line breaks or spaces in them."""
_CUT_CHARS = 4
"""What may follow a cut: `…` or `...`, and a quote."""

_BREAKS = re.compile(r"(?:\\+[nrt]|\s)+")
_NUMBERED = re.compile(
    r"%([0-9a-f]{2})|\\+u00([0-9a-f]{2})|\\+x([0-9a-f]{2})|&#x([0-9a-f]{1,4});|&#([0-9]{1,5});|\\+([/\"'])|&(quot|amp|lt|gt);"
)
"""Signs written by their number or name, in lower case."""
_NAMED = {"quot": '"', "amp": "&", "lt": "<", "gt": ">"}
_WRITINGS = 2
"""How often signs may have been written so, one inside the other."""

Spans = Iterator[tuple[int, int]]


class Redactor:
    """Removes the given values from texts."""

    def __init__(self, values: Iterable[str]) -> None:
        values = {value for value in values if len(value.strip()) >= SECRET_CHARS}
        self._exact = {value for value in values if len(value) < CODED_CHARS}
        forms = {_lower(form) for value in values - self._exact for form in _forms(value)}
        self._forms = _Forms(forms)
        squeezed = {_BREAKS.sub("", form) for form in forms}
        self._squeezed = _Forms(each for each in squeezed if len(each) >= _BROKEN_CHARS)

    def __bool__(self) -> bool:
        return bool(self._exact or self._forms)

    def __call__(self, text: str) -> str:
        """The text without the values."""
        spans = [span for value in self._exact for span in _occurrences(text, value)]
        if self._forms:
            lower = _lower(text)
            spans += self._forms.find(lower)
            spans += self._broken(lower)
            spans += self._numbered(lower)
        return _cut_out(text, spans) if spans else text

    def _broken(self, lower: str) -> list[tuple[int, int]]:
        """Where values are that contain line breaks."""
        if not self._squeezed or (squeezed := _BREAKS.sub("", lower)) == lower:
            return []
        found = self._squeezed.find(squeezed)
        return [_stretched(lower, span) for span in found] if found else []

    def _numbered(self, lower: str) -> list[tuple[int, int]]:
        """Where values stand of which signs are written by their numbers."""
        spans: list[tuple[int, int]] = []
        readings: list[_Places] = []
        while len(readings) < _WRITINGS and _NUMBERED.search(lower):
            lower, places = _read_numbers(lower)
            readings.insert(0, places)
            for start, end in self._forms.find(lower):
                for reading in readings:
                    start, end = reading.before(start), reading.before(end)
                spans.append((start, end))
        return spans


def hide_texts(value: Any, hide: Callable[[str], str]) -> Any:
    """A JSON value with `hide` applied to every text in it, keys included."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide(str(name)): hide_texts(item, hide) for name, item in value.items()}
    return [hide_texts(item, hide) for item in value] if isinstance(value, list | tuple) else value


def _forms(value: str) -> set[str]:
    """The forms a value may be written in."""
    parts = {value, value.strip()} | {line.strip() for line in value.splitlines()}
    parts = {part for part in parts if len(part) >= CODED_CHARS}
    found = {form for part in parts for form in (*_escaped(part), *_coded(part.encode("utf-8", "surrogatepass")))}
    # Base64 once more, as in a file of secrets.
    inner = {form for part in {value, value.strip()} for form in _in_base64(part.encode("utf-8", "surrogatepass"))}
    return found | {form for each in inner for form in _in_base64(each.encode())}


def _escaped(part: str) -> Iterator[str]:
    yield part
    for form in (json.dumps(part, ensure_ascii=False)[1:-1], json.dumps(part)[1:-1], repr(part)[1:-1]):
        yield form
        yield json.dumps(form, ensure_ascii=False)[1:-1]  # JSON in JSON, as in the arguments of a tool call
    yield html.escape(part)
    encoded = part.encode("utf-8", "surrogatepass")
    yield from (quote(encoded), quote(encoded, safe=""), quote_plus(encoded))


def _coded(part: bytes) -> Iterator[str]:
    """Hexadecimal, and base64 for every alignment of the value."""
    yield part.hex()
    yield from _in_base64(part)


def _in_base64(part: bytes) -> Iterator[str]:
    """Without the signs that its neighbours share."""
    for before, shared in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(part)) * 8 // 6
        plain = base64.b64encode(b"\0" * before + part).decode()[shared:whole]
        if len(plain) >= PIECE_CHARS:
            yield plain
            yield plain.replace("+", "-").replace("/", "_")
            yield quote_plus(plain)


class _Places(NamedTuple):
    """Where pieces of a text begin, in what was made of it and in the text itself."""

    made: list[int]
    text: list[int]

    def before(self, index: int) -> int:
        """A place in what was made, in the text; one inside of a piece counts from where that begins."""
        piece = bisect_right(self.made, index) - 1
        return self.text[piece] + index - self.made[piece]


def _read_numbers(text: str) -> tuple[str, _Places]:
    """The text with signs that are written by their numbers as themselves."""
    pieces: list[str] = []
    places = _Places([0], [0])
    at = made = 0
    for found in _NUMBERED.finditer(text):
        pieces += (text[at : found.start()], _sign(found))
        made += found.start() - at + 1
        at = found.end()
        places.made.extend((made - 1, made))
        places.text.extend((found.start(), at))
    pieces.append(text[at:])
    return "".join(pieces), places


def _sign(found: re.Match[str]) -> str:
    *hexadecimal, decimal, itself, name = found.groups()
    if itself or name:
        return itself or _NAMED[name]
    number = int(decimal) if decimal else int(next(filter(None, hexadecimal)), 16)
    return _lower(chr(number)) if 0 < number < 0xD800 else "\ufffd"


def _lower(text: str) -> str:
    """In lower case, with every character at the same index."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


class _Forms:
    """Forms of values, by their first and last characters: a text is read once, however many forms there are."""

    def __init__(self, forms: Iterable[str]) -> None:
        self._by_piece: dict[str, set[str]] = {}
        for form in forms:
            for piece in (form[:PIECE_CHARS], form[-PIECE_CHARS:]):
                self._by_piece.setdefault(piece, set()).add(form)

    def __bool__(self) -> bool:
        return bool(self._by_piece)

    def find(self, text: str) -> list[tuple[int, int]]:
        pieces = {text[at : at + PIECE_CHARS] for at in range(len(text) - PIECE_CHARS + 1)}
        return [
            span
            for piece in self._by_piece.keys() & pieces
            for form in self._by_piece[piece]
            for find in (_occurrences, _cut_at_the_end, _cut_at_the_start)
            for span in find(text, form)
        ]


def _occurrences(text: str, form: str) -> Spans:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + len(form))


def _cut_at_the_end(text: str, form: str) -> Spans:
    """The first part of a form, at the end of the text: `sk-012…`."""
    end = len(text.rstrip("…. \"')"))
    end = len(text) if len(text) - end > _CUT_CHARS else end
    at = text.find(form[:PIECE_CHARS], max(0, end - len(form)), end)
    while at >= 0:
        if form.startswith(text[at:end]):
            yield at, end
            return
        at = text.find(form[:PIECE_CHARS], at + 1, end)


def _cut_at_the_start(text: str, form: str) -> Spans:
    """The last part of a form, at the start of the text: `…789`."""
    start = len(text) - len(text.lstrip("…. \"'("))
    start = 0 if start > _CUT_CHARS else start
    at = text.find(form[-PIECE_CHARS:], start, start + len(form))
    while at >= 0:
        end = at + PIECE_CHARS
        if form.endswith(text[start:end]):
            yield start, end
            return
        at = text.find(form[-PIECE_CHARS:], at + 1, start + len(form))


def _stretched(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """A span of the text without breaks, as a span of the text with them."""
    kept, before, lengths = [], 0, []
    at = 0
    for broken in _BREAKS.finditer(text):
        kept.append(before)
        lengths.append(at)
        before += broken.start() - at
        at = broken.end()
    kept.append(before)
    lengths.append(at)

    def place(index: int) -> int:
        piece = bisect_right(kept, index) - 1
        return lengths[piece] + index - kept[piece]

    return place(span[0]), place(span[1] - 1) + 1


def _cut_out(text: str, spans: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at:
            continue
        if start > at or not pieces:
            pieces += [text[at:start], MARK]
        at = end
    return "".join(pieces) + text[at:]


_of_this_process = Redactor(())


def keep_secret(values: Iterable[str]) -> None:
    """Set the values that no record or log of this process may contain, in any form."""
    global _of_this_process
    _of_this_process = Redactor(values)


def without_secrets(text: str) -> str:
    """The text without the values of `keep_secret`."""
    return _of_this_process(text)


def without_secrets_in(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record without the values of `keep_secret`: text by text, so that cuts are found and numbers stay intact.

    Token ids encode the texts, so they are removed too when a text held a secret.
    """
    if not _of_this_process:
        return record
    found: list[str] = []

    def hide(text: str) -> str:
        hidden = _of_this_process(text)
        if hidden != text:
            found.append(hidden)
        return hidden

    clean: dict[str, Any] = hide_texts(record, hide)
    if found:
        clean.pop("tokens", None)
    return clean
