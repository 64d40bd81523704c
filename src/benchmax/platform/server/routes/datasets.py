"""Datasets: your uploaded rows, looked at, added to, removed."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Annotated

from fastapi import Query, Request, Response

from benchmax.envs.catalogue import environments, is_named
from benchmax.envs.datasets.readers import FORMATS
from benchmax.envs.datasets.usable_rows import check_count
from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes.parameters import Limit, UploadPath, UploadPrefix, any_body
from benchmax.platform.server.routes.storage import receive
from benchmax.platform.server.security.authentication import Caller, Principal
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import catalogue
from benchmax.platform.server.services.datasets import dataset_files
from benchmax.platform.server.services.datasets.preview import PREVIEW_ROWS, count_lines, has_row_per_line, reads_some
from benchmax.platform.server.services.datasets.stored_rows import StoredRows
from benchmax.platform.server.services.runs.launch_checks import row_reader
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router, in_threads, read_file
from benchmax.platform.store.runs import runs
from benchmax.platform.store.uploads import blobs, unused_blobs, uploads
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.datasets import DatasetInfo, DatasetList, DatasetPreview, RowAdded, RowRequest

router = Router(prefix="/v1/datasets", tags=["datasets"])

_COUNTED_BYTES = 4 * 1024 * 1024
_COUNTED_FILES = 50
_APPEND_TRIES = 5
_count_once = lru_cache(maxsize=10_000)(count_lines)  # the content of a blob never changes

EnvironmentName = Annotated[str | None, Query(max_length=80)]
"""The environment that is to read the rows."""


@router.get("")
def list_datasets(services: Services, caller: Caller, prefix: UploadPrefix = "", limit: Limit = 1000) -> DatasetList:
    """Your datasets, newest first."""
    with services.database.read() as db:
        found = uploads.datasets_of(db, caller.user_id, tuple(FORMATS), prefix, limit)
    uncounted = [blob for path, blob in found if blob.rows is None and has_row_per_line(path.path)]
    small = [blob for blob in uncounted if blob.size <= _COUNTED_BYTES][:_COUNTED_FILES]
    files = {blob.sha256: services.blobs.path(blob.sha256) for blob in small}
    counts = {sha256: _count_once(file) for sha256, file in files.items() if file.is_file()}
    return DatasetList(
        datasets=[
            shape(DatasetInfo, path, bytes=blob.size, rows=counts.get(blob.sha256, blob.rows)) for path, blob in found
        ]
    )


@router.get("/preview", response_model=DatasetPreview)
@in_threads("files")
def preview(
    services: Services,
    caller: Caller,
    path: UploadPath,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    environment: EnvironmentName = None,
) -> Response:
    """The first rows of an uploaded dataset, and what is wrong with any of the first 100,000.

    Without `environment`, rows that have no prompt are read as the built-in environment that knows their columns;
    an empty one asks for a prompt or messages.
    """
    with services.database.read() as db:
        _, blob = required(blobs.find(db, caller.user_id, path), "You have no upload of that name. Check the path.")
    seen = _read_as(services, caller, StoredRows(services.blobs, blob.sha256, path), limit, environment)
    return Response(seen.model_dump_json(by_alias=True), media_type="application/json")  # not encoded in the loop


def _read_as(
    services: Services, caller: Principal, rows: StoredRows, limit: int, environment: str | None
) -> DatasetPreview:
    """A preview by the environment that is asked for, else by the last one it was used with, or any that can."""
    environment = _used_with(services, caller, rows.path) if environment is None else environment
    reader = _reader(services, caller, environment)
    seen = rows.preview(limit, reader)
    if reader is not None:
        return seen.model_copy(update={"environment": environment})
    for name in environments() if seen.rows and not seen.usable and environment is None else ():
        if not reads_some(name, seen.sample):
            continue
        other = rows.preview(limit, name)
        if other.usable:
            return other.model_copy(update={"environment": name})
    return seen


@router.post("", status_code=201, openapi_extra=any_body("application/octet-stream", "text/csv"))
async def create_dataset(
    request: Request,
    services: Services,
    caller: Caller,
    name: Annotated[str, Query(min_length=1, max_length=200)],
    environment: EnvironmentName = None,
) -> DatasetPreview:
    """Store a CSV, TSV, JSON, JSON lines or Parquet file, as it is, under `datasets/NAME`."""
    path = _path(name)
    sha256, size = await receive(request, services)
    return await read_file(caller.user_id, _keep, services, caller, path, sha256, size, environment)


def _keep(
    services: Services, caller: Principal, path: str, sha256: str, size: int, environment: str | None
) -> DatasetPreview:
    rows = StoredRows(services.blobs, sha256, path)
    try:
        seen = _read_as(services, caller, rows, 20, environment)
        # Rows none of which has our columns may still be what some environment reads: then readable is enough.
        check_count(seen.usable or sum(1 for _ in islice(rows.read(), PREVIEW_ROWS)))
    except UsageError:
        with services.database.write() as db:
            blobs.note_nameless(db, sha256, size)
        raise
    with services.database.write() as db:
        dataset_files.name(db, caller.user_id, path, sha256, size, seen.rows)
        caller.note(db, "dataset.create", path, rows=seen.rows)
    return seen


def _used_with(services: Services, caller: Principal, path: str) -> str | None:
    """The environment of the newest run on this dataset, unless it is gone."""
    with services.database.read() as db:
        run = runs.newest_on(db, caller.user_id, path)
        return catalogue.of_run(db, run) if run is not None and run.paths.get("env_cls_path") else None


def _reader(services: Services, caller: Principal, environment: str | None) -> str | None:
    """Whose columns the rows must have: a built-in environment's, or those that an uploaded one is known to read."""
    if not environment or is_named(environment):
        return environment or None
    with services.database.read() as db:
        uploaded = catalogue.find(db, caller.user_id, environment).uploaded
    return row_reader(services.blobs, uploaded.cls_sha256, uploaded.metadata_sha256) if uploaded else None


def _path(name: str) -> str:
    """`datasets/<name>`, of letters that are safe in a path."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    if f".{plain.lower()}" in FORMATS:  # nothing but the suffix is left
        raise UsageError(f"{name!r} has no letter from a to z and no digit before its suffix. Choose another name.")
    dataset_files.check_suffix(plain[-80:])
    return blobs.check_path(f"datasets/{plain}")


@router.post("/rows", status_code=201)
@in_threads("files")
def add_row(services: Services, caller: Caller, body: RowRequest) -> RowAdded:
    """Add a row: the path names a new version of the file, and runs that were launched with the old one keep it."""
    if body.create:
        return _first_row(services, caller, body)
    target = dataset_files.lines_path(body.path)
    for _ in range(_APPEND_TRIES):
        with services.database.read() as db:
            source, blob = dataset_files.latest(db, caller.user_id, body.path)
        sha256, size, count = dataset_files.with_row(services.blobs, blob, source.path, body.row)
        with services.database.write() as db:
            if dataset_files.latest(db, caller.user_id, body.path, lock=True)[1].sha256 == blob.sha256:
                dataset_files.name(db, caller.user_id, target, sha256, size, count)
                caller.note(db, "dataset.append", target, rows=count)
                return RowAdded(path=target, rows=count)
    raise Refused(409, "Other requests are adding rows to this dataset. Try again.")


def _first_row(services: Services, caller: Principal, body: RowRequest) -> RowAdded:
    """A dataset that begins with one row; it may be shorter than a training run asks for, since more are to come."""
    path = dataset_files.lines_path(_path(body.path.removeprefix("datasets/")))
    sha256, size, count = dataset_files.store_rows(services.blobs, [body.row])
    with services.database.write() as db:
        taken = blobs.find(db, caller.user_id, path) is not None
        if taken:
            blobs.note_nameless(db, sha256, size)
        else:
            dataset_files.name(db, caller.user_id, path, sha256, size, count)
            caller.note(db, "dataset.create", path, rows=count)
    if taken:
        raise Refused(409, f"You have a dataset named {path} already. Choose it to add the row, or give another name.")
    return RowAdded(path=path, rows=count)


@router.delete("")
def delete_dataset(services: Services, caller: Caller, path: UploadPath) -> Success:
    """Remove a dataset. Runs that were launched with it keep their copy."""
    with services.database.write() as db:
        row, blob = dataset_files.find(db, caller.user_id, path)
        db.delete(row)
        db.flush()
        unused_blobs.drop_if_unused(db, services.blobs, blob.sha256)
        caller.note(db, "dataset.delete", path)
    return Success(success=True, message="The dataset is removed.")
