"""Removes secrets from text, by value: as they are, in the encodings of other programs, and in pieces.

A value is found in every form that a log or a message may have it in (JSON, URL, base64 inside a longer text such as
Basic auth, hexadecimal, lists of bytes, HTML; upper or lower case), line by line when it has several, with line breaks
or colours inserted into it, and where a limit on the length of a text cut it in two, at an end of the text or in its
middle. Characters written by their number, as URLs, JSON, HTML and Python do, are decoded, twice where one encoding is
inside another. The time that this takes grows with the length of the text, whatever is in it.

    hide = Redactor([value])
    hide("the key is …")        # the key is [secret]
"""

from __future__ import annotations

import base64
import html
import json
import re
import sys
import unicodedata
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
_BROKEN_CHARS = 16
"""Forms of at least this length are also found with line breaks, spaces, colours or invisible characters in them."""

_BREAKS = re.compile(r"(?:(?<!\\)\\+[nrt]|[\s\0\u200b-\u200d\u2060\ufeff]|\x1b\[[0-9;]*[a-z])+")
"""A run of backslashes is looked at from its first alone: there may be a million."""
_BYTES = re.compile(r"(?:(?:0x)?[0-9a-f]{2}(?:[:,-]\s?|\s)){7,}(?:0x)?[0-9a-f]{2}")
_BYTE_BREAKS = re.compile(r"(?:0x|[\s:,-])+")
"""`73:6b:2d`, `0x73, 0x6b, 0x2d`, and what is between two bytes of it."""
_ESCAPES = re.compile(
    r"%(?P<hex1>[0-9a-f]{2})"
    r"|(?<!\\)\\+(?:u0000(?P<hex2>[0-9a-f]{4})|u\{(?P<hex3>[0-9a-f]{1,6})\}|u(?P<hex4>[0-9a-f]{4})|x(?P<hex5>[0-9a-f]{2})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<itself>[/\"']))"
    r"|&#x0*(?P<hex6>[0-9a-f]{1,6});|&#0*(?P<decimal>[0-9]{1,7});|&(?P<name>quot|amp|lt|gt);"
)
"""Characters written by their number or name, in lower case."""
_CUT_OFF = re.compile(r"…|\.{2,}|[\[(<]{1,2}(?:…|\.{2}|\d|truncated|cut|snip)")
_CUT_ON = re.compile(
    r"(?:…|\.{2,}|(?:chars|characters|bytes|truncated|more|omitted|left out|cut|snip)[^\])>\n]{0,9}[\])>]{1,2})"
    r"[\"'\s]{0,2}"
)
"""What follows the first part of a text that was cut, and what stands before its last part."""
_HALF_AN_ESCAPE = re.compile(r"(?:%[0-9a-f]?|\\(?:u[0-9a-f]{0,3}|x[0-9a-f]?)?)\Z")
_CUT_CHARS = 4
"""What may be at a cut end of a text beside the value: `…` or `...`, and a quote."""
_BY_NAME = {"quot": '"', "amp": "&", "lt": "<", "gt": ">"}
_ESCAPE_DEPTH = 2
"""How often characters may have been escaped, one escape inside the other."""

Spans = Iterator[tuple[int, int]]


class Redactor:
    """Removes the given values from texts; those with fewer characters than `shortest` stay."""

    def __init__(self, values: Iterable[str], shortest: int = SECRET_CHARS) -> None:
        values = {value for value in values if len(value.strip()) >= shortest}
        self._exact = {value for value in values if len(value) < CODED_CHARS}
        forms = {_lower(form) for value in values - self._exact for form in _forms(value)}
        self._forms = _Forms(forms)
        squeezed = {_BREAKS.sub("", form) for form in forms}
        self._squeezed = _Forms(each for each in squeezed if len(each) >= _BROKEN_CHARS)
        coded = {
            part.encode("utf-8", "surrogatepass").hex() for value in values - self._exact for part in _parts(value)
        }
        self._bytes = _Forms(each for each in coded if len(each) >= _BROKEN_CHARS)

    def __bool__(self) -> bool:
        return bool(self._exact or self._forms)

    def __call__(self, text: str) -> str:
        """The text without the values."""
        spans = [span for value in self._exact for span in _occurrences(text, value)]
        if self._forms:
            lower = _lower(text)
            spans += self._forms.find(lower)
            spans += _broken(lower, _BREAKS, self._squeezed)
            spans += self._in_bytes(lower)
            spans += self._in_escapes(lower)
        return _cut_out(text, spans) if spans else text

    def _in_bytes(self, lower: str) -> list[tuple[int, int]]:
        """Where values are that are written as a list of their bytes."""
        return [
            (found.start() + start, found.start() + end)
            for found in _BYTES.finditer(lower)
            for start, end in _broken(found[0], _BYTE_BREAKS, self._bytes)
        ]

    def _in_escapes(self, lower: str) -> list[tuple[int, int]]:
        """Where values are of which characters are written as escapes."""
        spans: list[tuple[int, int]] = []
        readings: list[_Offsets] = []
        while len(readings) < _ESCAPE_DEPTH and _ESCAPES.search(lower):
            lower, offsets = _rewrite(lower, _ESCAPES, _character)
            readings.insert(0, offsets)
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
    found = {form for part in _parts(value) for form in (*_escaped(part), *_coded(part))}
    # Base64 once more, as in a file of secrets.
    inner = {form for part in {value, value.strip()} for form in _in_base64(part.encode("utf-8", "surrogatepass"))}
    return found | {form for each in inner for form in _in_base64(each.encode())}


def _parts(value: str) -> set[str]:
    """The whole, and its lines."""
    parts = {value, value.strip()} | {line.strip() for line in value.splitlines()}
    return {part for part in parts if len(part) >= CODED_CHARS}


def _escaped(part: str) -> Iterator[str]:
    yield part
    if not part.isascii():
        yield part.encode("utf-8", "surrogatepass").decode("latin-1")  # byte by byte, as `%C3%A4` and `\\xc3\\xa4` are
        yield from (unicodedata.normalize("NFC", part), unicodedata.normalize("NFD", part))
    for form in (json.dumps(part, ensure_ascii=False)[1:-1], json.dumps(part)[1:-1], repr(part)[1:-1]):
        yield form
        yield json.dumps(form, ensure_ascii=False)[1:-1]  # JSON in JSON, as in the arguments of a tool call
    yield html.escape(part)
    encoded = part.encode("utf-8", "surrogatepass")
    yield from (quote(encoded), quote(encoded, safe=""), quote_plus(encoded))


def _coded(part: str) -> Iterator[str]:
    """Hexadecimal, a list of bytes, and base64 for every alignment of the value."""
    encoded, inner = part.encode("utf-8", "surrogatepass"), json.dumps(part)[1:-1]
    yield encoded.hex()
    yield ",".join(map(str, encoded))
    yield from _in_base64(encoded)
    yield from _in_base64(part.encode("utf-16-le", "surrogatepass"))
    if inner != part:
        yield from _in_base64(inner.encode())


def _in_base64(part: bytes) -> Iterator[str]:
    """Without the characters that its neighbours share."""
    for before, shared in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(part)) * 8 // 6
        plain = base64.b64encode(b"\0" * before + part).decode()[shared:whole]
        if len(plain) >= PIECE_CHARS:
            yield plain
            yield plain.replace("+", "-").replace("/", "_")
            yield quote_plus(plain)


class _Offsets(NamedTuple):
    """Where pieces of a text begin, after it was rewritten and before."""

    rewritten: list[int]
    original: list[int]

    def before(self, index: int) -> int:
        """An index in the rewritten text, in the original; one inside of a piece counts from where that begins."""
        piece = bisect_right(self.rewritten, index) - 1
        return self.original[piece] + index - self.rewritten[piece]


def _rewrite(text: str, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> tuple[str, _Offsets]:
    """The text with every match replaced, by one character at most, and where its pieces are."""
    pieces: list[str] = []
    offsets = _Offsets([0], [0])
    at = made = 0
    for found in pattern.finditer(text):
        new = replacement(found)
        pieces += (text[at : found.start()], new)
        made += found.start() - at
        at = found.end()
        offsets.rewritten.extend((made, made + 1) if new else (made,))
        offsets.original.extend((found.start(), at) if new else (at,))
        made += len(new)
    pieces.append(text[at:])
    return "".join(pieces), offsets


def _character(found: re.Match[str]) -> str:
    kind = str(found.lastgroup)
    if kind in ("itself", "name"):
        return found["itself"] or _BY_NAME[found["name"]]
    number = int(found[kind], {"octal": 8, "decimal": 10}.get(kind, 16))
    return _lower(chr(number)) if 0 < number < 0xD800 or 0xDFFF < number <= sys.maxunicode else "\ufffd"


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
        present = {form for piece in self._by_piece.keys() & pieces for form in self._by_piece[piece]}
        if not present:
            return []
        ends, starts = _cut_ends(text), _cut_starts(text)
        spans = [span for form in present for span in _occurrences(text, form)]
        spans += [span for form in present for end in ends for span in _cut_off(text, form, end)]
        return spans + [span for form in present for start in starts for span in _cut_on(text, form, start)]


def _occurrences(text: str, form: str) -> Spans:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + len(form))


def _cut_ends(text: str) -> list[int]:
    """Where a value may end too early: before every mark of a cut, and at the end of the text."""
    whole = len(text.rstrip("…. \"')"))
    last = len(text) if len(text) - whole > _CUT_CHARS else whole
    marks = [mark.start() for mark in _CUT_OFF.finditer(text)]
    before = (text[max(0, at - 2) : at] for at in marks)  # a quote or a space may stand before a mark
    ends = [at - len(near) + len(near.rstrip("\"' \n")) for at, near in zip(marks, before, strict=True)]
    return [_before_half_an_escape(text, end) for end in (*ends, last)]


def _before_half_an_escape(text: str, end: int) -> int:
    half = _HALF_AN_ESCAPE.search(text[max(0, end - 6) : end])
    return end - len(half[0]) if half else end


def _cut_starts(text: str) -> list[int]:
    """Where a value may begin too late: at the start of the text, and after every mark of a cut."""
    first = len(text) - len(text.lstrip("…. \"'("))
    return [0 if first > _CUT_CHARS else first, *(mark.end() for mark in _CUT_ON.finditer(text))]


def _cut_off(text: str, form: str, end: int) -> Spans:
    """The first part of a form, before a cut: `sk-012…`."""
    at = text.find(form[:PIECE_CHARS], max(0, end - len(form)), end)
    while at >= 0:
        if form.startswith(text[at:end]):
            yield at, end
            return
        at = text.find(form[:PIECE_CHARS], at + 1, end)


def _cut_on(text: str, form: str, start: int) -> Spans:
    """The last part of a form, after a cut: `…789`."""
    at = text.find(form[-PIECE_CHARS:], start, start + len(form))
    while at >= 0:
        end = at + PIECE_CHARS
        if form.endswith(text[start:end]):
            yield start, end
            return
        at = text.find(form[-PIECE_CHARS:], at + 1, start + len(form))


def _broken(lower: str, breaks: re.Pattern[str], forms: _Forms) -> list[tuple[int, int]]:
    """Where forms are that have breaks in them."""
    if not forms or (squeezed := breaks.sub("", lower)) == lower:
        return []
    if not (found := forms.find(squeezed)):
        return []
    _, offsets = _rewrite(lower, breaks, lambda _: "")
    return [(offsets.before(start), offsets.before(end - 1) + 1) for start, end in found]


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
