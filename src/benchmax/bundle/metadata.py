"""A bundle: the pickled environment, and a JSON manifest that describes it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from benchmax.bundle.errors import DependencyError, ValidationError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class BundleMetadata:
    """The manifest. The first four fields are all that older clients write."""

    pip_dependencies: list[str] = field(default_factory=list)
    python_version: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    benchmax_version: str = ""
    env_class_source: str | None = None
    env_class: str | None = None
    local_modules: list[str] = field(default_factory=list)
    """Modules packed by value, because they are not installed packages."""
    sha256: str | None = None
    """Of the pickle; None in bundles of older clients."""
    format_version: int = FORMAT_VERSION
    created_by: str | None = None
    constructor_args: dict[str, Any] | None = None
    """In bundles of the older style, whose pickle is the class alone."""
    network: str | None = None
    """`none` for an environment that needs none; in a sandbox it then has none."""

    def to_json_bytes(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, indent=2).encode("utf-8", "replace")

    @classmethod
    def from_json_bytes(cls, data: bytes) -> BundleMetadata:
        """Read a manifest; unknown fields are ignored, missing ones take their default."""
        try:
            raw = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValidationError(f"The bundle's metadata is not JSON: {error}. Pack the environment again.") from None
        if not isinstance(raw, dict):
            raise ValidationError("The bundle's metadata is not a JSON object. Pack the environment again.")
        known = {each.name: raw[each.name] for each in fields(cls) if raw.get(each.name) is not None}
        if "python_version" not in known:
            raise ValidationError("The bundle's metadata names no python_version. Pack the environment again.")
        for name, value in known.items():
            _check(name, value)
        return cls(**known)


_KINDS = {"pip_dependencies": list, "local_modules": list, "format_version": int, "constructor_args": dict}
"""The types of the fields that are no text."""


def _check(name: str, value: Any) -> None:
    items = value if isinstance(value, list) else ()
    if type(value) is not _KINDS.get(name, str) or not all(isinstance(item, str) for item in items):
        raise ValidationError(f"The bundle's metadata has a wrong value for {name}. Pack the environment again.")


@dataclass(frozen=True, slots=True)
class Bundle:
    """An environment as a file: `pickled` is cloudpickle's form of `(env_class, constructor_args)`."""

    pickled: bytes
    metadata: BundleMetadata

    @property
    def pickled_class(self) -> bytes:
        """The pickle, by its older name."""
        return self.pickled


def python_minor(metadata: BundleMetadata) -> str:
    """The Python the bundle was made with, such as "3.12"."""
    found = re.fullmatch(r"(3\.\d{1,3})(\.\w{1,20})?", metadata.python_version)
    if found is None:
        raise ValidationError(f"{metadata.python_version[:40]!r} is not a Python version. Pack the environment again.")
    return found[1]


def bundle_digest(pickled: bytes) -> str:
    return hashlib.sha256(pickled).hexdigest()


def canonical_dependencies(dependencies: Iterable[str]) -> list[str]:
    """The requirements in canonical form, sorted and without duplicates; raises DependencyError for wrong ones."""
    good, wrong = split_dependencies(dependencies)
    if wrong:
        raise DependencyError(
            f"Not a package requirement: {', '.join(map(repr, wrong))}. Write them as pip does, such as 'numpy>=2'."
        )
    return good


def requirement_name(text: str) -> str:
    """The canonical name of a requirement's package; empty for what is not a requirement."""
    try:
        return canonicalize_name(Requirement(text).name)
    except (InvalidRequirement, TypeError):
        return ""


def split_dependencies(dependencies: Iterable[str]) -> tuple[list[str], list[str]]:
    """The valid requirements, in canonical form, and the invalid ones."""
    good: set[str] = set()
    wrong: list[str] = []
    for text in dependencies:
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, TypeError):
            wrong.append(text)
            continue
        requirement.name = canonicalize_name(requirement.name)
        good.add(str(requirement))
    return sorted(good), wrong


def write_bundle_files(bundle: Bundle, pickle_path: str | Path, metadata_path: str | Path) -> None:
    """Write the two files of a bundle."""
    Path(pickle_path).write_bytes(bundle.pickled)
    Path(metadata_path).write_bytes(bundle.metadata.to_json_bytes())


def read_bundle_files(pickle_path: str | Path, metadata_path: str | Path) -> Bundle:
    """Read the two files of a bundle; nothing in them is run."""
    metadata = BundleMetadata.from_json_bytes(Path(metadata_path).read_bytes())
    return Bundle(Path(pickle_path).read_bytes(), metadata)
