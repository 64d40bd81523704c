"""Country profiles as articles: one for each section of a profile, one line for each fact.

Transportation of Chad
Airports: 59 (2013)
Airports - with paved runways, total: 9
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmax.search.types import Document

INTRODUCTION = "Introduction"
NAMES = {
    "cc": "Curacao", "cf": "Republic of the Congo", "cg": "Democratic Republic of the Congo", "ck": "Cocos Islands",
    "dr": "Dominican Republic", "ee": "European Union", "oo": "Southern Ocean", "sk": "Sint Maarten",
    "xo": "Indian Ocean", "xq": "Arctic Ocean", "xx": "World", "zh": "Atlantic Ocean", "zn": "Pacific Ocean",
}  # fmt: skip
"""Of profiles that hold no short name, or one that is no title."""


class Profile(NamedTuple):
    """A country, or something else that has a profile, with its facts by section and label."""

    name: str
    long_name: str
    facts: Mapping[str, Mapping[str, str]]


def read_profile(code: str, raw: Mapping[str, Any]) -> Profile | None:
    """The profile in a file; None for one without a name."""
    facts = {section: dict(_facts(fields)) for section, fields in raw.items() if isinstance(fields, Mapping)}
    government = facts.get("Government", {})
    short = government.get("Country name, conventional short form", "none")
    long_name = government.get("Country name, conventional long form", "none")
    name = NAMES.get(code) or _bare(short) or _bare(long_name)
    return Profile(name, _bare(long_name), facts) if name else None


def articles(profile: Profile) -> Iterator[Document]:
    """The article about a country, which names the others, and one for each section."""
    sections = [section for section, facts in profile.facts.items() if facts and section != INTRODUCTION]
    others = "See also: " + ", ".join(title(section, profile.name) for section in sections)
    background = "\n".join(profile.facts.get(INTRODUCTION, {}).values())
    yield Document(profile.name, profile.name, f"{background}\n{others}".strip())
    for section in sections:
        lines = (f"{label}: {text}" for label, text in profile.facts[section].items())
        name = title(section, profile.name)
        yield Document(name, name, "\n".join(lines), {"country": profile.name})


def title(section: str, country: str) -> str:
    """The title of a section's article."""
    return f"{section.capitalize()} of {country}"


def _facts(fields: Mapping[str, Any], label: str = "") -> Iterator[tuple[str, str]]:
    """The facts below a field, each with its whole label."""
    for name, value in fields.items():
        whole = ", ".join(part for part in (label, "" if name == "text" else name) if part)
        if isinstance(value, Mapping):
            yield from _facts(value, whole)
        elif isinstance(value, str) and value.strip() and whole:
            yield whole, " ".join(value.replace(" ++ ", "; ").split()).lstrip("; ")


def _bare(name: str) -> str:
    """A name without what stands in brackets or after a semicolon; "" for none."""
    bare = name.partition("(")[0].partition(";")[0].strip()
    return "" if bare.lower() == "none" else bare
