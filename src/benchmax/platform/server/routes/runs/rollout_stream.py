"""Rollouts before there is a run: one example, or groups, played by the runner and streamed as they happen."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from benchmax.bundle.metadata import BundleMetadata
from benchmax.errors import UsageError
from benchmax.files import json_size
from benchmax.platform.server.error_responses import required
from benchmax.platform.server.security.authentication import Caller, Principal
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.datasets import dataset_files
from benchmax.platform.server.services.event_response import STREAM, event_response
from benchmax.platform.server.services.live_sessions import Event, encoded
from benchmax.platform.server.services.models import ChosenModel, choose
from benchmax.platform.server.services.runs.launch_checks import check_bundle
from benchmax.platform.server.threads import Router, read_file
from benchmax.platform.store.uploads import blobs
from benchmax.platform.store.uploads.uploads import manifest_bytes
from benchmax.platform.wire.rollout_requests import BatchRequest, RolloutEnv, RolloutOptions, RolloutRequest
from benchmax.platform.wire.values import LAST_EVENTS, LAST_GROUP_EVENTS

router = Router(tags=["rollouts"])


@router.post("/rollout/stream", response_class=StreamingResponse, include_in_schema=False)  # the oldest clients'
@router.post("/v1/rollout/stream", response_class=StreamingResponse, responses=STREAM)
async def stream_rollout(services: Services, caller: Caller, body: RolloutRequest) -> StreamingResponse:
    """Play one example: rollout_started, message…, reward, rollout_completed."""
    if (body.raw_example is None) == (body.standardized_example is None):
        raise UsageError("Send one of raw_example and standardized_example.")
    rows = [body.raw_example if body.standardized_example is None else body.standardized_example]
    chosen = await run_in_threadpool(choose, services, caller.user_id, body.llm)
    request = _request(services, "rollout", rows, chosen, body.options, body.standardized_example is not None)
    return await _play(services, caller, body.env, request, LAST_EVENTS)


@router.post("/rollout/batch/stream", response_class=StreamingResponse, include_in_schema=False)
@router.post("/v1/rollout/batch/stream", response_class=StreamingResponse, responses=STREAM)
async def stream_batch(services: Services, caller: Caller, body: BatchRequest) -> StreamingResponse:
    """Play examples as groups: batch_started, rollout_completed…, batch_completed."""
    rows = (await read_file(caller.user_id, _rows, services, caller, body))[: body.max_examples]
    if not rows:
        raise UsageError("The dataset has no rows. Send dataset_bytes or the dataset_path of an upload.")
    if body.model is not None:
        body.llm.model = body.model.name
    chosen = await run_in_threadpool(choose, services, caller.user_id, body.llm)
    request = _request(services, "batch", rows, chosen, body.options, body.is_dataset_standardized)
    samples = body.group_size or body.options.samples_per_example
    workers = max(1, body.max_in_flight // samples) if body.max_in_flight else body.concurrent_workers
    request["options"] |= {"samples": samples, "workers": workers}
    return await _play(services, caller, body.env, request, LAST_GROUP_EVENTS)


def _request(
    services: Services, do: str, rows: list[Any], chosen: ChosenModel, options: RolloutOptions, standardized: bool
) -> dict[str, Any]:
    return {
        "do": do,
        "rows": rows,
        "standardized": standardized,
        "llm": chosen.to_dict(services.settings),
        "options": options.model_dump(),
    }


async def _play(
    services: Services, caller: Principal, env: RolloutEnv, request: Mapping[str, Any], last: frozenset[str]
) -> StreamingResponse:
    services.limiter.hit("rollout", caller.user_id)
    digest, files = await run_in_threadpool(_bundle, services, caller, env)

    def failed(words: str, begun: bool) -> Event:
        return {"event": "worker_error" if begun else "error", "error": words}

    sessions = services.live_sessions
    said = sessions.ask(lambda: sessions.for_rollouts(caller.user_id, digest, files), request)
    return event_response(encoded(said, last, failed))


def _bundle(services: Services, caller: Principal, env: RolloutEnv) -> tuple[str, dict[str, Path | bytes]]:
    """A name for the environment, and its two files; only the manifest is read."""
    by_path = (env.env_cls_path, env.env_metadata_path)
    by_bytes = (env.env_cls_bytes, env.env_metadata_bytes)
    found: list[Path | bytes]
    if all(by_path) and not any(each is not None for each in by_bytes):
        found = [_blob(services, caller, str(path)) for path in by_path]
    elif all(each is not None for each in by_bytes) and not any(by_path):
        found = [_decoded(str(text), "env") for text in by_bytes]
    else:
        raise UsageError("Give the environment either as env_cls_path and env_metadata_path, or as the two bytes.")
    pickled, manifest = found
    text = manifest_bytes(manifest)
    check_bundle(pickled, BundleMetadata.from_json_bytes(text))
    digest = hashlib.sha256(text)
    digest.update(hashlib.sha256(pickled).digest() if isinstance(pickled, bytes) else pickled.name.encode())
    return digest.hexdigest(), {"env_cls_path": pickled, "env_metadata_path": manifest}


def _rows(services: Services, caller: Principal, body: BatchRequest) -> list[Any]:
    if (body.dataset_bytes is None) == (body.dataset_path is None):
        raise UsageError("Send one of dataset_bytes and dataset_path.")
    if body.dataset_path is not None:
        splits = dataset_files.splits_of(services, caller.user_id, body.dataset_path)
        rows = splits.get(body.split) or splits.get("train")
        return required(rows, _no_upload(body.dataset_path)).first(body.max_examples)
    content = _decoded(body.dataset_bytes or "", "dataset_bytes")
    if json_size.too_many(content):
        raise UsageError("dataset_bytes holds too many values. Upload the rows as .jsonl and give dataset_path.")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        try:
            value = [json.loads(line) for line in content.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise UsageError("dataset_bytes is not JSON. Send one row, a list of rows, or one row a line.") from None
    return value if isinstance(value, list) else [value]


def _blob(services: Services, caller: Principal, path: str) -> Path:
    with services.database.read() as db:
        _, blob = required(blobs.find(db, caller.user_id, path), _no_upload(path))
    return services.blobs.path(blob.sha256)


def _no_upload(path: str) -> str:
    return f"You have no upload at {path[:200]!r}. Upload it first, or send the bytes."


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"{what} is not base64. Send the bytes as base64 text.") from None
