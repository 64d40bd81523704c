"""What a bundle declares and what its pickle would import, read without running anything of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmax.bundle.errors import ValidationError
from benchmax.bundle.load import incompatibility
from benchmax.bundle.metadata import BundleMetadata, bundle_digest, split_dependencies
from benchmax.bundle.pickle_names import Global, Names, names_in

MOST_BYTES = 256 * 1024 * 1024
"""Largest pickle that is read."""

_MODULES = {
    "asyncio.subprocess", "code", "commands", "ctypes", "importlib", "multiprocessing", "nt", "os", "pickle", "posix",
    "pty", "runpy", "shutil", "signal", "socket", "subprocess", "sys", "webbrowser",
}  # fmt: skip
_BUILTINS = {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "open"}


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What a bundle declares, and what its pickle would import."""

    size: int
    sha256: str
    digest_ok: bool | None
    """None when the metadata names no digest."""
    metadata: BundleMetadata
    globals: list[str]
    modules: list[str]
    suspicious: list[str]
    """Names that run commands or code by themselves. Their absence proves nothing: packed functions may do anything."""
    pip_dependencies: list[str]
    bad_dependencies: list[str]
    problems: list[str] = field(default_factory=list)
    """Why no platform accepts the bundle; empty when it can be accepted."""
    incompatible: str | None = None
    """Why this interpreter cannot open it; another may."""

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def env_class(self) -> str | None:
        return self.metadata.env_class

    @property
    def source(self) -> str | None:
        return self.metadata.env_class_source


def inspect_bundle(pickled: bytes, metadata: BundleMetadata) -> BundleReport:
    """Read a bundle's opcodes and manifest. Nothing is imported, called or installed."""
    digest = bundle_digest(pickled)
    digest_ok = None if metadata.sha256 is None else metadata.sha256 == digest
    names, problems = Names(), list[str]()
    try:
        if len(pickled) > MOST_BYTES:
            raise ValidationError(f"The bundle has {len(pickled):,} bytes; at most {MOST_BYTES:,} are read. Pack less.")
        names = names_in(pickled)
    except ValidationError as error:
        problems.append(str(error))
    good, bad = split_dependencies(metadata.pip_dependencies)
    if digest_ok is False:
        problems.append("The pickle is not the one the metadata was written for (sha256 differs). Upload both again.")
    if bad:
        problems.append(f"Not a package requirement: {', '.join(map(repr, bad))}. Correct pip_dependencies.")
    try:
        other = incompatibility(metadata)
    except ValidationError as error:
        other = error
        problems.append(str(error))
    suspicious = sorted(str(each) for each in names.globals if _suspicious(each))
    if names.computed:
        suspicious.append(f"{names.computed} computed names")
    return BundleReport(
        len(pickled), digest, digest_ok, metadata, sorted(map(str, names.globals)), sorted(names.all_modules()),
        suspicious, good, bad, problems, None if other is None else str(other),
    )  # fmt: skip


def _suspicious(each: Global) -> bool:
    root = each.module.partition(".")[0]
    return root in _MODULES or each.module in _MODULES or (root == "builtins" and each.name in _BUILTINS)
