"""Uploads: ask for an address, PUT the bytes there once."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused
from benchmax.platform.server.routes.parameters import Limit, UploadPath, UploadPrefix, any_body
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.server_services import Address, Services
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router, in_threads, run_write
from benchmax.platform.store.tables import Upload
from benchmax.platform.store.uploads import blobs
from benchmax.platform.wire.datasets import UPLOAD_TYPES, StoredFile, StoredFiles, UploadUrl

router = Router(tags=["storage"])

_MINUTES = 60


@router.get("/v1/storage/upload-url")
@in_threads("writes")
def upload_url(
    services: Services,
    caller: Caller,
    address: Address,
    path: UploadPath,
    mime_type: Annotated[str, Query(alias="mimeType", min_length=1, max_length=100)],
    minutes: Annotated[int, Query(alias="expiresInMinutes", ge=1, le=1440)] = _MINUTES,
) -> UploadUrl:
    """An address that takes one PUT of the file."""
    if PurePosixPath(path).suffix.lower() not in UPLOAD_TYPES:
        raise UsageError(f"Files of this kind are not taken. Give a name that ends in {', '.join(UPLOAD_TYPES)}.")
    with services.database.write() as db:
        there = blobs.find(db, caller.user_id, path)
        token, upload = blobs.create_upload(db, caller.user_id, path, mime_type, minutes * 60.0, caller.key_id)
    return UploadUrl(
        upload_url=f"{address}/v1/storage/uploads/{token}",
        expires_at=upload.expires,
        blob_path=path,
        will_overwrite=there is not None,
    )


@router.put("/v1/storage/uploads/{token}", status_code=201, openapi_extra=any_body("application/octet-stream"))
async def upload(request: Request, services: Services, token: Annotated[str, Path(max_length=200)]) -> dict[str, Any]:
    """Take a file. The token in the address is what allows it; no other credentials are asked for."""
    permit = await run_write(_claim, services, token)
    try:
        sha256, size = await receive(request, services)
        await run_write(_name, services, permit, sha256, size)
    except BaseException:
        await asyncio.shield(run_write(_give_back, services, permit))
        raise
    return {"blobPath": permit.path, "sha256": sha256, "bytes": size}


async def receive(request: Request, services: Services) -> tuple[str, int]:
    """Store a body as it comes; returns its SHA-256 and size."""
    try:
        with services.blobs.receive() as incoming:
            async for piece in request.stream():
                await run_in_threadpool(incoming.write, piece)
            return await run_in_threadpool(incoming.keep), incoming.size
    except ClientDisconnect:
        raise Refused(400, "The connection was lost before the whole file was here. Send it again.") from None
    except OSError as error:
        raise Refused(507, f"The file cannot be stored: {error.strerror}. Free some space on the server.") from None


def _claim(services: Services, token: str) -> Upload:
    with services.database.write() as db:
        permit = blobs.claim_upload(db, token)
    if permit is None:
        raise Refused(403, "This upload address is unknown, used or too old. Ask for a new one.")
    return permit


def _name(services: Services, permit: Upload, sha256: str, size: int) -> None:
    with services.database.write() as db:
        if allowed := blobs.is_allowed(db, permit):
            blobs.name_blob(db, permit, sha256, size)
        else:
            blobs.note_nameless(db, sha256, size)
    if not allowed:
        raise Refused(403, "The key that asked for this address was revoked meanwhile. Use another.")


def _give_back(services: Services, permit: Upload) -> None:
    with services.database.write() as db:
        blobs.reopen_upload(db, permit)


@router.get("/v1/storage/files")
def files(services: Services, caller: Caller, prefix: UploadPrefix = "", limit: Limit = 1000) -> StoredFiles:
    """Your uploads, newest first."""
    with services.database.read() as db:
        found = blobs.paths_of(db, caller.user_id, prefix, limit)
    return StoredFiles(files=[shape(StoredFile, path, bytes=blob.size) for path, blob in found])
