"""Answers with several places to fill: `<name>…</name><age>…</age>`, `id;name;amount`, `Name: X, Age: Y`.

The prompt shows how it is written, and names the columns whose values belong there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from benchmax.doctor.gold.answer_formats import QUOTED

LONGEST = 400
"""Characters of a template; a longer one is an explanation."""
MOST_KEYS = 12
_SLOT = r"(?:\.{3}|…|_{2,}|<[^<>/\n]{0,40}>|\{[^{}\n]{0,40}\}|\[[^\[\]\n]{0,40}\]|[A-Z]+\b|[xyz?]\b)"
"""What stands for a value."""
_AFTER_COLON = re.compile(r":\s+(\S[^\n]*)")
_LIKE = re.compile(
    r"\b(?:as|like|form|format|e\.g\.|example):?,?\s+([\[({<][^\n\[\](){}<>]{1,60}[\])}>]|\S*[^\w\s.,]\S*)"
)
_ELEMENT = re.compile(r"<[A-Za-z][^<>\n]*=[^<>\n]*>")
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
"""A place in a template that names no key: the a and b of `a/b`."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MARK = "\0"


def filled(prompt: str, table: Mapping[str, str]) -> Iterator[str]:
    """The phrases of the prompt that name at least two of the table's keys, with its values in their places."""
    keys = list(table)[:MOST_KEYS]
    for phrase in dict.fromkeys(_phrases(prompt, keys)):
        text, places = _marked(phrase, keys) if len(phrase) <= LONGEST else ("", 0)
        if places > 1:
            yield re.sub(f"{_MARK}(\\d+){_MARK}", lambda match: table[keys[int(match[1])]], text)


def filled_in_order(prompt: str, values: list[str]) -> Iterator[str]:
    """The phrases of the prompt with a letter or number for each of the values, and the values in their stead; a single
    number fills both ends of an interval."""
    shown = ["".join(match) for match in QUOTED.findall(prompt)] + [each.rstrip(".") for each in _LIKE.findall(prompt)]
    numbers = (values * 2 if len(values) == 1 else values) if all(map(_NUMBER.fullmatch, values)) else []
    for phrase in dict.fromkeys(shown):
        letters = list(dict.fromkeys(_LETTER.findall(phrase))) if len(phrase) <= LONGEST else []
        if len(letters) == len(values) > 1:
            yield _with_letters(phrase, dict(zip(letters, values, strict=True)))
        elif numbers and len(_NUMBER.findall(phrase)) == len(numbers):
            yield _with_numbers(phrase, numbers)


def _with_letters(phrase: str, texts: Mapping[str, str]) -> str:
    return _LETTER.sub(lambda match: texts[match[0]], phrase)


def _with_numbers(phrase: str, numbers: list[str]) -> str:
    following = iter(numbers)
    return _NUMBER.sub(lambda match: next(following), phrase)


def _phrases(prompt: str, keys: list[str]) -> Iterator[str]:
    """What may be a template: in quotes, after a colon, or all from the first key to the last."""
    yield from ("".join(match) for match in QUOTED.findall(prompt))
    yield from (match.rstrip(" .") for match in _AFTER_COLON.findall(prompt))
    yield from _ELEMENT.findall(prompt)
    found = [match.span() for key in keys for match in re.finditer(_name(key), prompt, re.IGNORECASE)]
    if found:
        begin, end = min(found)[0], max(end for _, end in found)
        yield _widened(prompt, begin, end)
        yield prompt[prompt.rfind("\n", 0, begin) + 1 : end] + prompt[end:].partition("\n")[0]


def _widened(text: str, begin: int, end: int) -> str:
    """The span and what adjoins it without a space, less the full stop of its sentence."""
    while begin > 0 and not text[begin - 1].isspace():
        begin -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[begin:end].rstrip(".")


def _marked(phrase: str, keys: list[str]) -> tuple[str, int]:
    """The phrase with a mark at the place of each key's value, and how many have one."""
    places = 0
    for at, key in enumerate(keys):
        for pattern in _patterns(key):
            changed, count = re.subn(pattern, rf"\g<1>{_MARK}{at}{_MARK}\g<2>", phrase, count=1, flags=re.IGNORECASE)
            if count:
                phrase, places = changed, places + 1
                break
    return phrase, places


def _patterns(key: str) -> Iterator[str]:
    """Where a key's value stands, the surest first: inside its tag or attribute, after its label, in its stead."""
    name = _name(key)
    yield rf"(<{name}>)[^<>\n{_MARK}]{{0,40}}(</{name}>)"
    yield rf"({name}=\")[^\"\n{_MARK}]{{0,40}}(\")"
    yield rf"({name}[\"'*]*\s*[:=]\s*[\"']?)(?-i:{_SLOT})()"
    yield rf"()[<{{\[]{name}[>}}\]]()"
    yield rf"(){name}()"


def _name(key: str) -> str:
    """The key as a word, whatever joins its parts."""
    return r"(?<!\w)" + r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", key))) + r"(?!\w)"
