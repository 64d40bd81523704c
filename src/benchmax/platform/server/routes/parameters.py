"""Parameters that many routes take."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from benchmax.platform.store.uploads.blobs import PATH_CHARS

Id = Annotated[str, Path(max_length=80)]
Limit = Annotated[int, Query(ge=1, le=1000)]
"""Entries in one answer."""
Cursor = Annotated[int, Query(ge=0, le=2**62)]
"""Where the answer before ended."""
UploadPath = Annotated[str, Query(min_length=1, max_length=PATH_CHARS)]
UploadPrefix = Annotated[str, Query(max_length=PATH_CHARS)]


def any_body(*media_types: str) -> dict[str, Any]:
    """How the API describes a body that the route reads by itself."""
    return {"requestBody": {"content": {each: {} for each in media_types}}}
