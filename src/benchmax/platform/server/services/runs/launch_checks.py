"""Checks a launch before anything is queued: its arguments, its bundle, its rows.

The bundle is not loaded: its manifest is JSON, and only the names in its pickle are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from benchmax import limits, plugins
from benchmax.bundle.metadata import BundleMetadata, python_minor
from benchmax.errors import NotFoundError, UsageError
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import models
from benchmax.platform.server.services.datasets.preview import OWN_CODE
from benchmax.platform.server.services.datasets.stored_rows import StoredRows
from benchmax.platform.store.uploads import blobs
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.store.uploads.uploads import manifest_bytes
from benchmax.platform.wire.launch_args import launch_args
from benchmax.platform.wire.launches import RUN_PATHS, LaunchArg
from benchmax.trainer.backend import EMBEDDED, backends

RUN_TYPES = ("simple", "simple-r5", "simple-cpu")
INSPECTED_BYTES = 16 * limits.MIB
"""A larger bundle is not inspected; its run fails with what is missing."""
_OLDEST_MINOR = 11
FINGERPRINT = "env_fingerprint"
"""Beside the digests of a run's uploads: what its environment is recognised by when it is packed again."""
SPLIT_FROM = "split_from"
"""Beside them: the path of the dataset whose rows were split for the run."""
_NAMED_BUNDLE = "Launch with the paths `upload_training_run` returned."


def specs() -> list[LaunchArg]:
    """The launch arguments of this machine."""
    return launch_args(models=sorted(chain(*models.local_names())), backends=backends())


def check_backend(given: Mapping[str, Any], secrets: Collection[str]) -> None:
    """Refuse a launch whose backend could not begin with these secrets; the arguments have been checked."""
    from benchmax.adapters.adapter import TrainerAdapter

    backend = given.get("backend") or EMBEDDED
    if backend == EMBEDDED:
        return
    if isinstance(found := plugins.load("trainers", backend), TrainerAdapter):
        if not given.get("model"):
            raise UsageError(f"The trainer {backend} has models of its own. Name one: model.")
        found.refuse_launch(secrets)


class Assets:
    """The four uploads of a launch; NotFoundError for one that is not there or not the caller's."""

    def __init__(self, services: Services, owner_id: str, args: Mapping[str, Any]) -> None:
        self._store = services.blobs
        self.paths: dict[str, str] = {}
        self.blobs: dict[str, str] = {}
        for name in RUN_PATHS:
            path = args.get(name)
            if not isinstance(path, str) or not path:
                raise UsageError(f"args.{name} is missing. {_NAMED_BUNDLE}")
            self.paths[name] = path
        with services.database.read() as db:
            for name, path in self.paths.items():
                found = blobs.find(db, owner_id, path)
                if found is None:
                    raise NotFoundError(f"{name}: you have no upload at {path[:200]!r}. {_NAMED_BUNDLE}")
                self.blobs[name] = found[1].sha256

    def check_bundle(self) -> None:
        """Refuse a bundle that a run could not open: damaged, for another Python, or in need of what is not here."""
        path = self._store.path(self.blobs["env_metadata_path"])
        manifest = BundleMetadata.from_json_bytes(manifest_bytes(path))
        if manifest.sha256 is not None and manifest.sha256 != self.blobs["env_cls_path"]:
            raise UsageError("The bundle is not the one its metadata describes (SHA-256). Upload it again.")
        check_bundle(self._store.path(self.blobs["env_cls_path"]), manifest)

    def recorded(self) -> dict[str, str]:
        """What a run keeps of its uploads: their digests, and the fingerprint of its environment."""
        from benchmax.bundle import fingerprint

        pickled = self._store.path(self.blobs["env_cls_path"])
        if pickled.stat().st_size > INSPECTED_BYTES:
            return self.blobs
        return {**self.blobs, FINGERPRINT: fingerprint(pickled.read_bytes())}

    def rows(self, name: str) -> StoredRows:
        """Those of one of the two datasets."""
        return StoredRows(self._store, self.blobs[name], self.paths[name])

    def count(self, name: str) -> int:
        """Usable rows of one of the two datasets; DatasetError for rows that the run could not use."""
        return self.rows(name).check(self.reader)

    @cached_property
    def reader(self) -> str:
        """Whose columns the rows must have, as `preview` names it."""
        return row_reader(self._store, self.blobs["env_cls_path"], self.blobs["env_metadata_path"])


def row_reader(store: BlobStore, cls_sha256: str, metadata_sha256: str) -> str:
    """Whose columns a bundle's rows must have: a built-in environment's, "" for those all know, or its own code's."""
    from benchmax.bundle import known_row_reader

    pickled, manifest = store.path(cls_sha256), store.path(metadata_sha256)
    if max(pickled.stat().st_size, manifest.stat().st_size) > INSPECTED_BYTES:
        return OWN_CODE
    known = known_row_reader(pickled.read_bytes(), BundleMetadata.from_json_bytes(manifest_bytes(manifest)))
    return OWN_CODE if known is None else known


def check_bundle(pickled: Path | bytes, manifest: BundleMetadata) -> None:
    """UsageError when no process of this machine could open a bundle; it says which Python or which name is missing."""
    from benchmax.bundle import check_compatible
    from benchmax.bundle.interpreters import HERE, interpreters

    minor = python_minor(manifest)
    if int(minor.partition(".")[2]) < _OLDEST_MINOR or not interpreters(minor):
        raise UsageError(
            f"The environment was bundled with Python {minor}; this server has {HERE}. Upload it again from "
            f"Python {HERE}, or install python{minor} on the server."
        )
    size = len(pickled) if isinstance(pickled, bytes) else pickled.stat().st_size
    if size <= INSPECTED_BYTES:
        check_compatible(pickled if isinstance(pickled, bytes) else pickled.read_bytes(), manifest)
