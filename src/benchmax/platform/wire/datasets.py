"""Uploaded files and datasets."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from benchmax.envs.datasets.readers import FORMATS
from benchmax.platform.wire.base import JsonObject, Time, Wire

UPLOAD_TYPES = {
    **{suffix: known.mime_type for suffix, known in FORMATS.items()},
    ".yaml": "text/yaml",
    ".yml": "text/yaml",
    ".pkl": "application/octet-stream",
    ".pickle": "application/octet-stream",
}
"""Suffixes of the files that can be uploaded, with their MIME types."""


class UploadUrl(Wire):
    upload_url: str
    expires_at: Time
    blob_path: str
    will_overwrite: bool


class DatasetIssue(Wire):
    row: int
    field: str | None
    severity: str
    message: str


class DatasetPreview(Wire):
    path: str
    bytes: int
    rows: int
    usable: int
    duplicates: int
    errors: int
    warnings: int
    issues: list[DatasetIssue]
    sample: list[dict[str, Any]]
    ids: list[str | None] = []
    """Of the rows in the sample: the example each becomes, None for one that cannot be used."""
    environment: str | None = None
    """The built-in environment they were read as."""


class StoredFile(Wire):
    path: str
    bytes: int
    mime_type: str
    sha256: str
    updated_at: Time


class StoredFiles(Wire):
    files: list[StoredFile]


class DatasetInfo(Wire):
    path: str
    bytes: int
    rows: int | None
    sha256: str
    updated_at: Time


class DatasetList(Wire):
    datasets: list[DatasetInfo]


class RowRequest(Wire):
    path: str = Field(min_length=1, max_length=500)
    row: JsonObject
    create: bool = False
    """Make a new dataset of this name, with this one row."""


class RowAdded(Wire):
    path: str
    """Where the new version is; a file that was not JSON lines gets a new name."""
    rows: int
