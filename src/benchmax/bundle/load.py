"""Opening a bundle. This runs the bundle's code, so only a process made for that may do it.

`load_bundle` raises unless the process opted in (the environment worker does, at its start) or the caller passes
`trust=True` for a bundle of their own. Nothing else in benchmax unpickles anything.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmax
from benchmax.bundle.errors import BundlingError, IncompatibleBenchmaxError, IncompatiblePythonError, ValidationError
from benchmax.bundle.interpreters import HERE
from benchmax.bundle.metadata import (
    FORMAT_VERSION,
    Bundle,
    BundleMetadata,
    bundle_digest,
    python_minor,
    read_bundle_files,
)
from benchmax.bundle.pack import validate_structure
from benchmax.envs.base_env import BaseEnv

_opted_in = False


def allow_loading() -> None:
    """Let this process open bundles. Only a process without secrets may call it."""
    global _opted_in
    _opted_in = True


def load_bundle(bundle: Bundle, *, instantiate: bool = True, trust: bool = False) -> Any:
    """The environment in the bundle, or `(env_class, constructor_args)`. Its packages must be installed."""
    env_class, arguments = _open(bundle, trust)
    return env_class(**arguments) if instantiate else (env_class, arguments)


def load_env_from_bundle(
    bundle: Bundle,
    *,
    constructor_args: Mapping[str, Any] | None = None,
    check_python_version: bool = True,
    check_benchmax_version: bool = False,
    install_pip_deps: bool = False,
    instantiate: bool | None = None,
    trust: bool = False,
) -> Any:
    """Older name: the class, or an instance when there are arguments or `instantiate` is set."""
    if install_pip_deps:
        raise BundlingError(
            "Opening a bundle installs nothing into this Python. Install its packages yourself, or open it in a "
            "process that has them: RemoteEnv(bundle, python=envs_venv(bundle.metadata, folder))."
        )
    if check_benchmax_version:
        _check_benchmax(bundle.metadata)
    env_class, packed = _open(bundle, trust, check_python_version)
    arguments = packed if constructor_args is None else dict(constructor_args)
    wanted = bool(arguments) if instantiate is None else instantiate
    return env_class(**arguments) if wanted else env_class


def load_env_from_files(pickle_path: str | Path, metadata_path: str | Path, **options: Any) -> Any:
    """`load_env_from_bundle` of two files."""
    return load_env_from_bundle(read_bundle_files(pickle_path, metadata_path), **options)


def load_env(
    pickled_class: bytes,
    metadata: BundleMetadata | None = None,
    *,
    pip_dependencies: list[str] | None = None,
    python_version: str | None = None,
    benchmax_version: str | None = None,
    **options: Any,
) -> Any:
    """`load_env_from_bundle` of a pickle; what is given of its manifest counts instead of what `metadata` says."""
    given: dict[str, Any] = {
        "pip_dependencies": pip_dependencies,
        "python_version": python_version,
        "benchmax_version": benchmax_version,
    }
    manifest = replace(
        metadata or BundleMetadata(), **{name: value for name, value in given.items() if value is not None}
    )
    return load_env_from_bundle(Bundle(pickled_class, manifest), **options)


def incompatibility(metadata: BundleMetadata, *, check_python_version: bool = True) -> BundlingError | None:
    """Why this Python cannot open the bundle, or None."""
    made = python_minor(metadata)
    if check_python_version and made != HERE:
        return IncompatiblePythonError(
            f"The bundle was made with Python {made} and this is Python {HERE}; packed functions work only in the same "
            f"minor version. Open it with Python {made}, or pack the environment again with Python {HERE}."
        )
    if metadata.format_version > FORMAT_VERSION:
        return IncompatibleBenchmaxError(
            f"The bundle has format {metadata.format_version}, made by {metadata.created_by or 'a newer benchmax'}; "
            f"this benchmax reads up to {FORMAT_VERSION}. Upgrade benchmax."
        )
    return None


def validate_bundle_compatibility(metadata: BundleMetadata) -> None:
    """Raise unless Python and benchmax have the same major and minor versions as where the bundle was made."""
    if (error := incompatibility(metadata)) is not None:
        raise error
    _check_benchmax(metadata)


def _check_benchmax(metadata: BundleMetadata) -> None:
    here, made = benchmax.__version__, metadata.benchmax_version
    if made.split(".")[:2] != here.split(".")[:2]:
        raise IncompatibleBenchmaxError(
            f"The bundle was made with benchmax {made or '(unknown)'} and this is {here}. Pack the environment again."
        )


def _open(bundle: Bundle, trust: bool, check_python_version: bool = True) -> tuple[type[BaseEnv], dict[str, Any]]:
    if not (trust or _opted_in):
        raise BundlingError(
            "Opening a bundle runs its code, and this process did not allow it. Use RemoteEnv(bundle) to run it in a "
            "process of its own, or pass trust=True for a bundle you made yourself."
        )
    metadata = bundle.metadata
    if (error := incompatibility(metadata, check_python_version=check_python_version)) is not None:
        raise error
    if metadata.sha256 is not None and metadata.sha256 != bundle_digest(bundle.pickled):
        raise ValidationError(
            "The bundle was changed after it was made: its sha256 is not the one in its metadata. Pack it again."
        )
    content = _unpickle(bundle.pickled)
    env_class, arguments = (
        content if isinstance(content, tuple) and len(content) == 2 else (content, metadata.constructor_args)
    )
    validate_structure(env_class)
    return env_class, dict(arguments or {})


def _unpickle(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)  # noqa: S301 (the one place; see the top)
    except ModuleNotFoundError as missing:
        raise BundlingError(
            f"The bundle needs the module {missing.name!r}, which is not installed here. "
            "Name its package in pip_dependencies."
        ) from missing
    except Exception as error:
        raise BundlingError(
            f"The bundle cannot be opened: {type(error).__name__}: {error}. Pack the environment again."
        ) from error
