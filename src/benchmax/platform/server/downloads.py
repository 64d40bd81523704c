"""Headers of answers that a browser saves as a file."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote


def attachment(name: str) -> dict[str, Any]:
    """Headers of a download: never shown inline, whatever is in it. A long name loses its beginning, not its suffix."""
    safe = "".join(letter for letter in name if letter.isalnum() or letter in "._-")[-100:].lstrip(".-") or "file"
    plain = safe.encode("ascii", "ignore").decode().lstrip(".-") or "file"
    said = f'attachment; filename="{plain}"'
    if plain != safe:
        said += f"; filename*=UTF-8''{quote(safe, errors='replace')}"
    return {"Content-Disposition": said, "Content-Type": "application/octet-stream"}
