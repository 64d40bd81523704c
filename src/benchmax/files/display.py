"""Untrusted text and sizes, as they are shown to people."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """The text with control and invisible characters, which could forge output, as escapes; except those in `keep`."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def readable_bytes(size: float) -> str:
    """A size in binary units, such as 1.5 GiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:g} bytes"
