"""An environment as a file: packed here, inspected without running it, opened only in a process made for that.

    bundle = dump_bundle(MyEnv, constructor_args={"seed": 1}, pip_dependencies=["sympy>=1.13"])
    report = inspect_bundle(bundle.pickled, bundle.metadata)
    env = RemoteEnv(bundle, python=envs_venv(bundle.metadata, cache))     # from benchmax.envs.remote

pack            from a class to a bundle; `local_modules` finds the user's files that must be included
metadata        the manifest
class_ids       the same environment packs into the same bytes; `fingerprint` recognises one that another client packed
inspection      what a bundle would import; `pickle_names` reads that out of its pickle
compatibility   whether this benchmax can run a bundle
load            opening one, which runs its code; errors: what can be wrong with it
validate        whether one works: opened in a process of its own, with its packages
environment_process  the program inside the child process of a `RemoteEnv`
venv            virtual environments for the packages of bundles; `interpreters` finds Pythons

Nothing but `load` unpickles anything, and only `environment_process` and callers who pass `trust=True` may use it.
"""

from __future__ import annotations

from benchmax.bundle.compatibility import check_compatible, known_row_reader, with_implied_packages
from benchmax.bundle.errors import (
    BundlingError,
    DependencyError,
    IncompatibleBenchmaxError,
    IncompatiblePythonError,
    ValidationError,
)
from benchmax.bundle.fingerprint import fingerprint
from benchmax.bundle.inspection import BundleReport, inspect_bundle
from benchmax.bundle.load import (
    load_bundle,
    load_env,
    load_env_from_bundle,
    load_env_from_files,
    validate_bundle_compatibility,
)
from benchmax.bundle.local_modules import unregistered_local_refs
from benchmax.bundle.metadata import Bundle, BundleMetadata, bundle_digest, read_bundle_files, write_bundle_files
from benchmax.bundle.pack import bundle_env, dump_bundle, validate_structure
from benchmax.bundle.validate import validate_bundle
from benchmax.bundle.venv import envs_venv

BundledEnv = Bundle

__all__ = [
    "Bundle",
    "BundleMetadata",
    "BundleReport",
    "BundledEnv",
    "BundlingError",
    "DependencyError",
    "IncompatibleBenchmaxError",
    "IncompatiblePythonError",
    "ValidationError",
    "bundle_digest",
    "bundle_env",
    "check_compatible",
    "dump_bundle",
    "envs_venv",
    "fingerprint",
    "inspect_bundle",
    "known_row_reader",
    "load_bundle",
    "load_env",
    "load_env_from_bundle",
    "load_env_from_files",
    "read_bundle_files",
    "unregistered_local_refs",
    "validate_bundle",
    "validate_bundle_compatibility",
    "validate_structure",
    "with_implied_packages",
    "write_bundle_files",
]
