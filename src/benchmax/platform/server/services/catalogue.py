"""Environments to choose from: those that come with benchmax or with plug-ins, and the caller's uploaded bundles.

A bundle is only read: its manifest is JSON, its pickle's opcodes are listed, nothing of it is run. Only benchmax's own
environments and those of packages that are installed beside it are imported here.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import logging
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from benchmax.bundle.errors import BundlingError
from benchmax.bundle.metadata import BundleMetadata
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.catalogue import LISTINGS, environments, is_added, is_named, listing
from benchmax.envs.loading import load_env_class, own_json_rows, usable_environments
from benchmax.errors import BenchmaxError, NotFoundError, UsageError
from benchmax.platform.server.services.datasets import dataset_files
from benchmax.platform.server.services.runs.launch_checks import INSPECTED_BYTES
from benchmax.platform.store.tables import Run
from benchmax.platform.store.uploads import uploads
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.store.uploads.uploads import BUILT_IN_ENVS, Uploaded
from benchmax.platform.wire.environments import EnvironmentDetails, EnvironmentInfo, SourceFile

logger = logging.getLogger(__name__)

SHOWN_BYTES = 200 * 1024
"""Of one source file."""
_PATH_WORDS = {",": ".and.", "=": ".by.", "/": ".of."}
"""What stands for the signs of `math=2,reasoning/leg_counting` in the paths of uploads."""
NOT_THERE = "You have no such environment. `list_environments` shows them."


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment of the list: built in, or an upload."""

    id: str
    uploaded: Uploaded | None
    """None for a built-in, whose id is its name."""


def all_environments(db: Session, owner_id: str) -> list[Environment]:
    """The built-in ones and those of plug-ins, then uploads, newest first."""
    own = [Environment(_id(each), each) for each in uploads.environments_of(db, owner_id)]
    return [*(Environment(name, None) for name in usable_environments()), *own]


def find(db: Session, owner_id: str, environment_id: str) -> Environment:
    for each in all_environments(db, owner_id):
        if each.id == environment_id:
            return each
    if _is_named(environment_id):  # several built-in ones, or one of a family
        return Environment(environment_id, None)
    raise NotFoundError(NOT_THERE)


def _is_named(name: str) -> bool:
    try:
        return is_named(name)
    except UsageError:  # a weight that is not a number
        return False


def of_run(db: Session, run: Run) -> str | None:
    """The id of the environment a run was launched with; None when the owner no longer has it."""
    path = run.paths.get("env_cls_path", "")
    if path.startswith(BUILT_IN_ENVS):
        name = path.removeprefix(BUILT_IN_ENVS).partition("/")[0]
        for sign, word in _PATH_WORDS.items():
            name = name.replace(word, sign)
        return name if _is_named(name) else None
    launched = (run.blobs.get("env_cls_path"), run.blobs.get("env_metadata_path"))
    known = uploads.environments_of(db, run.owner_id)
    return next((_id(each) for each in known if (each.cls_sha256, each.metadata_sha256) == launched), None)


def _id(uploaded: Uploaded) -> str:
    both = f"{uploaded.cls_sha256}{uploaded.metadata_sha256}"
    return f"env_{hashlib.sha256(both.encode()).hexdigest()[:32]}"


# What is shown


def info(store: BlobStore, environment: Environment, tools: Mapping[str, list[str]]) -> EnvironmentInfo:
    known = tools.get(environment.id)
    if environment.uploaded is None:
        observed = {} if known is None else {"tools": known}
        return _named(environment.id).model_copy(update={**observed, **_own_rows(environment.id)})
    uploaded = environment.uploaded
    manifest = _manifest(str(store.path(uploaded.metadata_sha256)))
    folder = uploaded.folder.split("/")
    return EnvironmentInfo(
        id=environment.id,
        name=(manifest.env_class or "").rpartition(".")[2] or (folder[1] if len(folder) > 1 else folder[0]),
        kind="bundle",
        path=uploaded.folder,
        description=_docstring(manifest.env_class_source or ""),
        digest=uploaded.cls_sha256,
        python_version=manifest.python_version,
        tools=known,
        created_at=uploaded.updated,
    )


def details(store: BlobStore, environment: Environment, tools: Mapping[str, list[str]]) -> EnvironmentDetails:
    shown = info(store, environment, tools)
    if environment.uploaded is None:
        files = [_source(path.name, path.read_text("utf-8", "replace")) for path in _source_files(environment.id)]
        return EnvironmentDetails(**dict(shown), files=files, manifest={}, imports=[], suspicious=[], problems=[])
    manifest = _manifest(str(store.path(environment.uploaded.metadata_sha256)))
    text = manifest.env_class_source
    plain = {name: value for name, value in asdict(manifest).items() if name != "env_class_source"}
    return EnvironmentDetails(
        **dict(shown),
        files=[_source(f"{shown.name}.py", text)] if text else [],
        manifest=plain,
        **_inspected(store.path(environment.uploaded.cls_sha256), manifest),
    )


def _source(path: str, text: str) -> SourceFile:
    shown = text.encode("utf-8", "replace")[:SHOWN_BYTES].decode("utf-8", "ignore")
    return SourceFile(path=path, text=shown, truncated=len(shown) < len(text))


def _inspected(path: Path, manifest: BundleMetadata) -> dict[str, Any]:
    """What the pickle would import, without opening it."""
    from benchmax.bundle import check_compatible, inspect_bundle

    unread: dict[str, Any] = {"imports": [], "suspicious": []}
    try:
        if path.stat().st_size > INSPECTED_BYTES:
            return unread | {"problems": ["The bundle is too large to be looked into here."]}
        pickled = path.read_bytes()
    except OSError:
        return unread | {"problems": ["The bundle is no longer stored. Upload it again."]}
    report = inspect_bundle(pickled, manifest)
    problems = [*report.problems, *([report.incompatible] if report.incompatible else [])]
    try:
        if report.ok:
            check_compatible(pickled, manifest)
    except BundlingError as error:
        problems.append(str(error))
    return {"imports": report.modules, "suspicious": report.suspicious, "problems": problems}


def _manifest(path: str) -> BundleMetadata:
    """A manifest by the path of its blob; an empty one when it cannot be read."""
    try:
        return _read_manifest(path)
    except (BundlingError, UsageError, OSError):
        return BundleMetadata(python_version="unknown")


@lru_cache(maxsize=512)
def _read_manifest(path: str) -> BundleMetadata:
    """The content of a blob never changes."""
    return BundleMetadata.from_json_bytes(uploads.manifest_bytes(Path(path)))


def _docstring(source: str) -> str:
    """The first paragraph of the class's docstring."""
    if not source or len(source) > SHOWN_BYTES:
        return ""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    texts = [ast.get_docstring(node) for node in tree.body if isinstance(node, ast.ClassDef)]
    return _first_paragraph(next((text for text in reversed(texts) if text), "") or ast.get_docstring(tree) or "")


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())[:500]


@cache
def _named(name: str) -> EnvironmentInfo:
    env_class = load_env_class(name)
    texts = [inspect.getdoc(inspect.getmodule(env_class)), env_class.__doc__]
    source = "".join(path.read_text("utf-8", "replace") for path in _source_files(name))
    return EnvironmentInfo(
        id=name,
        name=env_class.__name__,
        kind="plugin" if (added := is_added(name)) else "builtin",
        path=environments().get(name, name),
        description=_first_paragraph(next(filter(None, reversed(texts) if added else texts), "")),
        digest=hashlib.sha256(source.encode()).hexdigest(),
        python_version=BundleMetadata().python_version,
        created_at=None,
        tools=list(listing(name).tools) if name in LISTINGS else None,
        datasets=list(listing(name).datasets),
    )


def _own_rows(name: str) -> dict[str, bool | int]:
    """What is shown of its rows; nothing when they are not available, such as those of a corpus not yet fetched."""
    if not overrides(load_env_class(name), "load_dataset"):
        return {}
    try:
        return {"brings_rows": True, "own_rows": _counted(name)}
    except BenchmaxError as error:
        logger.warning("The rows of %s are not available: %s", name, error)
        return {}


@cache
def _counted(name: str) -> int:
    return listing(name).rows or len(own_json_rows(load_env_class(name)))


def _source_files(name: str) -> list[Path]:
    env_class = load_env_class(name)
    file = inspect.getsourcefile(env_class)
    if file is None:
        return []
    beside = Path(file).parent.glob("*.py") if "." in env_class.__module__ else [Path(file)]
    return sorted(path for path in beside if path.stat().st_size)


# What a launch needs


def bundle_paths(db: Session, store: BlobStore, owner_id: str, environment: Environment) -> dict[str, str]:
    """The two blob paths of an environment; a built-in one is packed and put among the owner's uploads."""
    if environment.uploaded is not None:
        return {"env_cls_path": environment.uploaded.cls_path, "env_metadata_path": environment.uploaded.metadata_path}
    from benchmax.bundle import dump_bundle

    bundle = dump_bundle(load_env_class(environment.id))
    name = "".join(_PATH_WORDS.get(sign, sign) for sign in environment.id)
    folder = f"{BUILT_IN_ENVS}{name}/{hashlib.sha256(bundle.pickled).hexdigest()[:16]}"
    files = {
        "env_cls_path": (f"{folder}/env-cls.pkl", bundle.pickled),
        "env_metadata_path": (f"{folder}/{uploads.MANIFEST}", bundle.metadata.to_json_bytes()),
    }
    for path, content in files.values():
        with store.receive() as incoming:
            incoming.write(content)
            sha256 = incoming.keep()
        dataset_files.name(db, owner_id, path, sha256, len(content), None)
    return {name: path for name, (path, _) in files.items()}


def own_dataset(environment: Environment) -> list[dict[str, Any]] | None:
    """The rows a built-in environment brings along; None when it brings none."""
    if environment.uploaded is not None:
        return None
    env_class: type[BaseEnv] = load_env_class(environment.id)
    return own_json_rows(env_class) if overrides(env_class, "load_dataset") else None
