"""Makes a run's directory ready for its child: launch.json, and the files it needs under plain names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from benchmax.errors import NotFoundError
from benchmax.files.atomic import replacing
from benchmax.platform.runner.children.child_files import LAUNCH_FILE, write_object
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import Run
from benchmax.platform.store.uploads.blobs import BlobStore

FILES = {
    "env_cls_path": "env-cls",
    "env_metadata_path": "env-metadata",
    "train_dataset_path": "train",
    "eval_dataset_path": "eval",
}
"""Names under `inputs/`, without the suffix the upload's path has."""


def prepare(data: DataDir, run: Run) -> Path:
    """Make the run directory with `inputs/` and launch.json; for a resumed run the result is the same."""
    run_dir = data.run(run.id)
    inputs = run_dir / "inputs"
    inputs.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = BlobStore(data.blobs)
    files = {}
    for name, stem in FILES.items():
        sha256 = run.blobs.get(name)
        if sha256:
            target = inputs / f"{stem}{PurePosixPath(run.paths.get(name, '')).suffix.lower()}"
            place(store.path(sha256), target)
            files[name] = str(target.relative_to(run_dir))
    launch: dict[str, Any] = {"run_id": run.id, "name": run.name, "type": run.kind, "args": run.args, "files": files}
    if run.parent:
        launch["parent"] = run.parent
    write_object(run_dir / LAUNCH_FILE, launch)
    return run_dir


def place(blob: Path, target: Path) -> None:
    """Link the blob, so that it stays whatever becomes of the upload; copy it from another disk."""
    if target.exists():
        return
    try:
        try:
            os.link(blob, target)
        except FileNotFoundError:
            raise
        except OSError:
            with blob.open("rb") as source, replacing(target) as copy:
                shutil.copyfileobj(source, copy)
    except FileNotFoundError:
        raise NotFoundError(
            f"A file of this run ({target.name}) is no longer stored. Upload it and launch again."
        ) from None
