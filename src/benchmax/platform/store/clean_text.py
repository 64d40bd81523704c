"""Text of models and environments, made fit for a database and for JSON: it may hold half characters and zero bytes."""

from __future__ import annotations

from typing import Any

from benchmax.files.redaction import hide_texts


def clean(text: str, chars: int | None = None) -> str:
    """The text with what cannot be stored replaced, cut to `chars`."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "\ufffd")[:chars]


def clean_json(value: Any) -> Any:
    """A JSON value with every text in it clean."""
    return hide_texts(value, clean)
