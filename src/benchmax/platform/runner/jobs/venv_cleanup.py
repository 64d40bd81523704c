"""Removes packages from `venvs/` that no environment needs any more; the others stay for the next run.

Many files take long to remove, so this has a thread of its own beside the supervisor's loop.
"""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy.exc import SQLAlchemyError

from benchmax.errors import UsageError
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.uploads import uploads
from benchmax.platform.store.uploads.blobs import BlobStore

logger = logging.getLogger(__name__)

UNUSED_SECONDS = 30 * 86_400.0
LOOK_SECONDS = 86_400.0
"""Between two looks."""


def keep_tidy(database: Database, data: DataDir) -> None:
    """Sweep now and every day, for as long as this process lives."""

    def look() -> None:
        while True:
            try:
                sweep(database, data)
            except (SQLAlchemyError, OSError) as error:
                logger.warning("unused packages cannot be removed now: %s", error)
            time.sleep(LOOK_SECONDS)

    threading.Thread(target=look, name="benchmax-venvs", daemon=True).start()


def sweep(database: Database, data: DataDir) -> None:
    """Remove the packages of environments that are deleted, with their runs, and unused for long."""
    from benchmax.bundle.venv import remove_unused

    if data.venvs.exists():
        for name in remove_unused(data.venvs, _wanted(database, data), UNUSED_SECONDS):
            logger.info("removed the packages in %s: no environment needs them", data.venvs / name)


def _wanted(database: Database, data: DataDir) -> set[str]:
    from benchmax.bundle.metadata import BundleMetadata
    from benchmax.bundle.venv import venv_name

    store, names = BlobStore(data.blobs), set()
    with database.read() as db:
        manifests = uploads.manifests(db)
    for file in map(store.path, manifests):
        try:
            if file.stat().st_size <= uploads.MANIFEST_BYTES:
                names.add(venv_name(BundleMetadata.from_json_bytes(file.read_bytes())))
        except (FileNotFoundError, UsageError):  # no run can use it either
            continue
    return names
