"""From an environment and rows to a run that can be launched: check, bundle, upload.

uploaded = upload_training_run(env_class=MyEnv, train_dataset=rows, eval_dataset=held_out, run_name="first")
run_id = TrainerClient().launch_training_run("simple", **asdict(uploaded))
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import write_jsonl
from benchmax.envs.datasets.readers import Source, readable_rows, source_name
from benchmax.envs.datasets.rows import json_type
from benchmax.envs.datasets.usable_rows import check_run_rows
from benchmax.errors import UsageError
from benchmax.files.digests import file_sha256
from benchmax.platform.sdk.storage_client import StorageClient

NAME_CHARS = 200


@dataclass(frozen=True)
class UploadedTrainingRun:
    """Where the four parts of a run are on the platform; `asdict` of it is what a launch takes."""

    env_cls_path: str
    env_metadata_path: str
    train_dataset_path: str
    eval_dataset_path: str


def upload_training_run(
    *,
    env_class: type[BaseEnv],
    train_dataset: Source,
    eval_dataset: Source,
    run_name: str,
    api_key: str | None = None,
    base_url: str | None = None,
    constructor_args: Mapping[str, Any] | None = None,
    pip_dependencies: Iterable[str] | None = None,
    local_modules: Iterable[ModuleType | str] | None = None,
    env_prefix: str | None = None,
    dataset_prefix: str | None = None,
    storage_client: StorageClient | None = None,
) -> UploadedTrainingRun:
    """Upload an environment and its rows. Rows that a run could not use, and fewer than 16 training rows, are refused
    before anything is sent.

    The same content goes to the same paths, so doing it again changes nothing.
    """
    from benchmax.bundle import dump_bundle

    name = _plain_name(run_name)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmax-")))
        train, held_out = folder / "train.jsonl", folder / "eval.jsonl"
        names = source_name(train_dataset, "train_dataset"), source_name(eval_dataset, "eval_dataset")
        check_run_rows(_written(train, train_dataset), _written(held_out, eval_dataset), env_class, names=names)
        bundle = dump_bundle(
            env_class,
            constructor_args=constructor_args,
            pip_dependencies=pip_dependencies,
            local_modules=local_modules,
        )
        env_at = f"{env_prefix or f'envs/{name}'}/{hashlib.sha256(bundle.pickled).hexdigest()[:16]}"
        data_at = f"{dataset_prefix or f'datasets/{name}'}/{file_sha256(train, held_out)[:8]}"
        storage = storage_client or stack.enter_context(StorageClient(api_key, base_url))
        binary, manifest = "application/octet-stream", bundle.metadata.to_json_bytes()
        return UploadedTrainingRun(
            storage.upload_file(f"{env_at}/env-cls.pkl", bundle.pickled, binary)["blobPath"],
            storage.upload_file(f"{env_at}/env-metadata.json", manifest, "application/json")["blobPath"],
            storage.upload_local_file(f"{data_at}/train.jsonl", train)["blobPath"],
            storage.upload_local_file(f"{data_at}/eval.jsonl", held_out)["blobPath"],
        )


def _plain_name(run_name: Any) -> str:
    """The run's name in letters that are safe in a path."""
    if not isinstance(run_name, str) or not 0 < len(run_name) <= NAME_CHARS:
        what = f"{len(run_name)} characters long" if isinstance(run_name, str) else json_type(run_name)
        raise UsageError(f"run_name is {what}. Give text of 1 to {NAME_CHARS} characters.")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", run_name).strip("-.") or "run"


def _written(path: Path, source: Source) -> Source:
    """Write the rows; returns a source to read them from again, which keeps the line numbers of a given file."""
    write_jsonl(path, (row.data for row in readable_rows(source)))
    return path if isinstance(source, Iterator) else source
