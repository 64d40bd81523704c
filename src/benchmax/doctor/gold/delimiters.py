"""The marks between which a prompt shows an answer: `>>4:9<<`, `%%…%%`, `<|value|>`, in the order they stand there.

The surest sign is an example whose shape is that of a value of the row; then what follows words like `such as`; then
doubled marks anywhere. A pair is read from left to right, and what it covers is not read again: in `>>a<<, or >>b<<`
nothing stands between `<<` and `>>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]
"""What stands before the answer, and what after it."""

LONGEST_VALUE = 40
LONGEST_MARK = 12
MOST_INSIDE = 60
_DOUBLED = ("[[ ]]", "{{ }}", "<< >>", "(( ))", "** **", "$$ $$")
_DOUBLED_ODDLY = (
    ">> <<", "]] [[", ")) ((", "}} {{", "»» ««", "«« »»", "~~ ~~", "%% %%", "## ##", ":: ::", "@@ @@", "|| ||", "^^ ^^",
    "&& &&", "!! !!", "?? ??", "== ==",
)  # fmt: skip
_SINGLE = ("[ ]", "| |", "$ $")
_FREE = (*_DOUBLED, *_DOUBLED_ODDLY, *_SINGLE)
_OPEN = r"(?<![^\s\"'`“(:])"
"""Before marks that also close, or that mean something else in code: nothing, a space or a quote."""
_MIRRORED = dict(zip("()[]{}<>«»‹›「」『』/\\", ")(][}{><»«›‹」「』『\\/", strict=True))
_SHOWN = re.compile(r"(?:\b(?:as|like|examples?|form|format)\b[:,]?|\be\.g\.,?|:)\s+[\"'`“„]?(?=\S)", re.IGNORECASE)
_CUE = re.compile(rf"(?:{_SHOWN.pattern})|\b(?:in|with|write|reply|answer)\s+[\"'`“„]?(?=\S)", re.IGNORECASE)
"""What comes before something that is shown, surely or maybe."""
_MARKS = re.compile(r"[^\w\s\"'`“”„.,;!?\\-]{1,4}")
_SLOT_MARKS = frozenset("<{[(*|$")
"""Alone, these mark a place to fill, emphasise, or are read without a cue."""
_BETWEEN = re.compile(
    r"\bbetween\s+[\"'`“]?([^\w\s\"'`“”,;]{1,4})[\"'`”]?\s+and\s+[\"'`“]?([^\w\s\"'`“”,;]{1,4}?)(?=[\"'`”\s.,;]|$)"
)
_SENTENCE = ".,;:!?"
_QUOTES = "\"'`“”„"


def pairs(prompt: str) -> list[Pair]:
    """The pairs of marks that the prompt shows, the surest first."""
    return list(dict.fromkeys((*_BETWEEN.findall(prompt), *_after_cues(prompt), *_free(prompt))))


def around_values(prompt: str, values: Iterable[str]) -> list[Pair]:
    """What adjoins an example of the shape of one of the values: the surest sign of all."""
    shapes = [re.compile(_shape(value)) for value in dict.fromkeys(values) if 0 < len(value) <= LONGEST_VALUE]
    shown = [prompt[cue.end() :].partition("\n")[0] for cue in _SHOWN.finditer(prompt)] if shapes else []
    found = (_around(shape, line) for line in shown for shape in shapes)
    return list(dict.fromkeys(pair for pair in found if pair is not None))


def _around(shape: re.Pattern[str], line: str) -> Pair | None:
    """What stands before and after the first text of this shape, up to a space; marks may be set off by one."""
    found = shape.search(line[: LONGEST_MARK + LONGEST_VALUE])
    if found is None:
        return None
    before, rest = line[: found.start()], line[found.end() :]
    gap = " " if before.endswith(" ") and rest.startswith(" ") else ""
    after = gap + re.split(r"\s", rest.removeprefix(gap), maxsplit=1)[0].rstrip(_SENTENCE + _QUOTES)
    return (before, after) if _is_mark(before) and _is_mark(after) else None


def _is_mark(text: str) -> bool:
    text = text.strip(" ")
    plain = any(each.isspace() or each in _QUOTES for each in text)
    return 0 < len(text) <= LONGEST_MARK and not plain and not re.fullmatch(r"</?[\w-]+>", text)


def is_alike(text: str, values: Iterable[str]) -> bool:
    """Whether a text has the shape of one of the values, and so may be an example of it."""
    return any(re.fullmatch(_shape(value), text) for value in values if 0 < len(value) <= LONGEST_VALUE)


def _shape(value: str) -> str:
    """A pattern of all texts like this: numbers for numbers, words for words, all else as it is."""
    parts = re.findall(r"\d+|[^\W\d_]+|.", value, re.DOTALL)
    kinds = (r"\d+" if part.isdecimal() else r"[^\W\d_]+" if part.isalpha() else re.escape(part) for part in parts)
    first, last = (r"\d" if each.isdecimal() else r"[^\W\d_]" for each in (value[0], value[-1]))
    return rf"(?<!{first})(?<!\d[.,]){''.join(kinds)}(?!{last})"


def _after_cues(prompt: str) -> Iterator[Pair]:
    """Marks around one word or value, where the prompt says that something is shown now."""
    for cue in _CUE.finditer(prompt):
        opening = _MARKS.match(prompt, cue.end())
        if opening is None or opening[0] in _SLOT_MARKS:
            continue
        inside = rf"(?:\w|[.…])(?:[^\n]{{0,{MOST_INSIDE}}}?[\w.…])?"
        mirrored = "".join(_MIRRORED.get(each, each) for each in reversed(opening[0]))
        for closing in dict.fromkeys((mirrored, opening[0])):
            end = rf"{re.escape(closing)}(?![\w{re.escape(closing[-1])}])"
            if re.compile(inside + end).match(prompt, opening.end()):
                yield opening[0], closing
                break


def _free(prompt: str) -> Iterator[Pair]:
    """Marks that stand for themselves wherever they are, the usual first."""
    found = {match.lastgroup for match in _PATTERN.finditer(prompt)}
    for at, pair in enumerate(_FREE):
        if f"p{at}" in found:
            opening, closing = pair.split()
            yield opening, closing


def _pattern(at: int, pair: str) -> str:
    opening, closing = pair.split()
    first, last = re.escape(opening[0]), re.escape(closing[-1])
    alone = rf"(?<!{first}){re.escape(opening)}(?!{first})" if len(opening) > 1 else re.escape(opening)
    shut = rf"{re.escape(closing)}(?!{last})" if len(closing) > 1 else re.escape(closing)
    before, after = (_OPEN, r"(?!\w)") if pair in _DOUBLED_ODDLY else ("", r"(?!\w)" * (opening == closing))
    return rf"(?P<p{at}>{before}{alone}[^\n]{{0,{MOST_INSIDE}}}?{shut}{after})"


_PATTERN = re.compile("|".join(_pattern(at, pair) for at, pair in enumerate(_FREE)))
