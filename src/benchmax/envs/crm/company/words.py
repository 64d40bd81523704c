"""Names and phrases of which a company is made, from `words.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def _listed(name: str) -> list[str]:
    found: str | list[str] = _WORDS[name]
    return found.split() if isinstance(found, str) else found


FIRST_NAMES, LAST_NAMES = _listed("first_names"), _listed("last_names")
FIRMS, TRADES, COMPANIES, INDUSTRIES = map(_listed, ("firms", "trades", "companies", "industries"))
SERIES, TRAITS, PRIORITIES, ORIGINS = map(_listed, ("series", "traits", "priorities", "origins"))
CITIES: dict[str, str] = _WORDS["cities"]
"""A city for each state."""
FAMILIES: dict[str, str] = _WORDS["families"]
"""The kinds of products, and what one of each is called."""
ISSUES: dict[str, str] = _WORDS["issues"]
"""What cases are about, and how a customer says it."""
TOPICS: list[dict[str, Any]] = _WORDS["topics"]
"""What the company promises; `policies` reads them."""
