"""What a search shows to the model: for each text its source, as it is to be cited, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmax import limits
from benchmax.concurrency import call_function
from benchmax.search.types import LEXICAL

_CUT = "\n[cut: search for less, or with a smaller limit]"


async def search(corpus: Any, query: str, limit: int, mode: str | None) -> str:
    """The texts that a corpus finds, as text for the model."""
    given = {} if mode in (None, LEXICAL) else {"mode": mode}
    return shown(list(await call_function(corpus.search, query, limit, **given) or ()), query)


def shown(found: Sequence[Any], query: str) -> str:
    if not found:
        return f"No results for {query[:100]!r}. Try other words."
    text = "\n".join(f"[Source: {_part(each, 'id')}] {_part(each, 'content')}".rstrip() for each in found)
    return text if len(text) <= limits.SEARCH_OUTPUT_CHARS else text[: limits.SEARCH_OUTPUT_CHARS] + _CUT


def _part(hit: Any, name: str) -> str:
    """Of a hit: an object or a mapping with an id and a content, or a plain text."""
    if isinstance(hit, str):
        return hit if name == "content" else "?"
    value = hit.get(name) if isinstance(hit, Mapping) else getattr(hit, name, "")
    return " ".join(str(value or "").split()) if name == "id" else str(value or "").strip()
