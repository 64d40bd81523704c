"""What a child is given: its run's directory, with launch.json and the files it needs under plain names, and what it is
told of the machine."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import func, select

from benchmax.errors import NotFoundError
from benchmax.files.atomic import link_or_copy
from benchmax.net.origins import origin
from benchmax.platform.runner.children.child_files import LAUNCH_FILE, read_child_file, write_child_file
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import Run, User
from benchmax.platform.store.uploads.blobs import BlobStore

FILES = {
    "env_cls_path": "env-cls",
    "env_metadata_path": "env-metadata",
    "train_dataset_path": "train",
    "eval_dataset_path": "eval",
}
"""Names under `inputs/`, without the suffix the upload's path has."""


def prepare(data: DataDir, run: Run) -> dict[str, str]:
    """Make the run directory with `inputs/` and launch.json; returns where its files are, by their names at launch.

    For a resumed run the result is the same.
    """
    run_dir = data.run(run.id)
    (run_dir / "inputs").mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {}
    for name, stem in FILES.items():
        if sha256 := run.blobs.get(name):
            files[name] = f"inputs/{stem}{PurePosixPath(run.paths.get(name, '')).suffix.lower()}"
            place(data, sha256, run_dir / files[name])
    launch: dict[str, Any] = {"run_id": run.id, "name": run.name, "type": run.kind, "args": run.args, "files": files}
    if run.parent:
        launch["parent"] = run.parent
    write_child_file(run_dir / LAUNCH_FILE, launch)
    return {name: str(run_dir / file) for name, file in files.items()}


def place(data: DataDir, sha256: str, target: Path) -> str:
    """Put a stored file where a child reads it, unless it is there; returns the path."""
    try:
        if not target.exists():
            link_or_copy(BlobStore(data.blobs).path(sha256), target)
        return str(target)
    except FileNotFoundError:
        raise NotFoundError(
            f"A file of this run ({target.name}) is no longer stored. Upload it and launch again."
        ) from None


def machine_message(database: Database, data: DataDir) -> dict[str, Any]:
    """The part of the runner's message to a child that is the same for all jobs: where packages are, whether there are
    other users, which ports are closed."""
    with database.read() as db:
        count = db.scalar(select(func.count()).select_from(User).where(User.deleted.is_(None)))
    url = str(read_child_file(data.server_info).get("url", ""))
    ports = {port for each in (url, data.database_url() or "") if (port := origin(each).port)}
    sandbox = {"several_users": (count or 0) > 1, "closed_ports": sorted(ports), "platform": url}
    return {"venvs": str(data.venvs), "sandbox": sandbox}
