"""An environment as a file: pack it, look into it without running it, open it only in a process made for that.

bundle = dump_bundle(MyEnv, constructor_args={"seed": 1}, pip_dependencies=["sympy>=1.13"])
report = inspect_bundle(bundle.pickled, bundle.metadata)
env = RemoteEnv(bundle, python=envs_venv(bundle.metadata, cache))     # from benchmax.envs.remote
"""

from __future__ import annotations

from benchmax.bundle.errors import (
    BundlingError,
    DependencyError,
    IncompatibleBenchmaxError,
    IncompatiblePythonError,
    ValidationError,
)
from benchmax.bundle.inspection import BundleReport, inspect_bundle
from benchmax.bundle.load import load_bundle, load_env_from_bundle, load_env_from_files, validate_bundle_compatibility
from benchmax.bundle.locals import unregistered_local_refs
from benchmax.bundle.metadata import Bundle, BundleMetadata, bundle_digest, read_bundle_files, write_bundle_files
from benchmax.bundle.pack import bundle_env, dump_bundle, validate_structure
from benchmax.bundle.servable import check_servable, rows_read_by, with_companions
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
    "check_servable",
    "dump_bundle",
    "envs_venv",
    "inspect_bundle",
    "load_bundle",
    "load_env_from_bundle",
    "load_env_from_files",
    "read_bundle_files",
    "rows_read_by",
    "unregistered_local_refs",
    "validate_bundle_compatibility",
    "validate_structure",
    "with_companions",
    "write_bundle_files",
]
