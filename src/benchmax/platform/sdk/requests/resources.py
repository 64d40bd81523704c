"""Environments and datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmax.platform.sdk.calls import Request, Row, as_object, delete, get, part_of_path, post, post_for, rows_in

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

POLL_SECONDS = 0.5


def list_environments() -> Request[list[Row]]:
    """The built-in environments, then your uploads, newest first."""
    return get("/v1/environments", rows_in("environments"))


def get_environment(environment_id: str) -> Request[Row]:
    """One environment with its source and manifest."""
    return get(f"/v1/environments/{part_of_path(environment_id)}", as_object)


async def examine_environment(exchange: Exchange, environment_id: str, *, dataset_path: str | None = None) -> Row:
    """Have the doctor examine an environment on the platform, and wait for its report."""
    path = f"/v1/environments/{part_of_path(environment_id)}/doctor"
    started = await exchange.ask(post_for("reportId", path, {"datasetPath": dataset_path}))
    report = get(f"{path}/{started}", as_object)
    return await exchange.poll(report, lambda found: found["status"] in ("complete", "failed"), POLL_SECONDS)


def list_datasets() -> Request[list[Row]]:
    """Your datasets."""
    return get("/v1/datasets", rows_in("datasets"))


def create_dataset(name: str, content: bytes) -> Request[Row]:
    """Store CSV, TSV, JSON, JSON lines or Parquet under `datasets/NAME`; returns a preview with what is wrong.

    Letters of the name that are not plain become `-`; the answer's `path` is the name it got.
    """
    return Request("POST", "/v1/datasets", as_object, {"name": name}, content=content)


def add_dataset_row(path: str, row: Mapping[str, Any]) -> Request[Row]:
    """Add a row to a dataset, as a new version of it; returns `{path, rows}`."""
    return post("/v1/datasets/rows", {"path": path, "row": dict(row)})


def delete_dataset(path: str) -> Request[Row]:
    """Delete a dataset."""
    return delete("/v1/datasets", path=path)
