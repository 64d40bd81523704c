"""Virtual environments for the packages of bundles, cached and shared by bundles with the same requirements.

The bundle's own packages come first on the path. benchmax and what it needs follow: those of the running interpreter
where the Python minor version is the same, and a fresh install of the light ones where it is not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from math import inf
from pathlib import Path

from packaging.requirements import Requirement

import benchmax
from benchmax.bundle.errors import DependencyError
from benchmax.bundle.interpreters import HERE, find_interpreter
from benchmax.bundle.metadata import (
    BundleMetadata,
    canonical_dependencies,
    python_minor,
    requirement_name,
)
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.files.locks import lock_file
from benchmax.package_folders import package_folders

INSTALL_SECONDS = 900.0
SHOWN_LINES = 15
_UNREACHABLE = (
    "NewConnectionError", "Failed to establish a new connection", "NameResolutionError", "Temporary failure in name",
    "ConnectTimeoutError", "Connection refused", "Network is unreachable", "ProxyError", "Tunnel connection failed",
    "SSLError", "ReadTimeoutError",
)  # fmt: skip
"""Messages of pip about an index that cannot be reached."""
COMPLETE = "complete"
"""A file in every finished environment; its time is when the environment was last requested."""


def envs_venv(metadata: BundleMetadata, cache_root: str | Path, *, wheels_only: bool = False) -> Path:
    """The interpreter for the bundle: the running one, or that of a cached environment with its packages.

    Building a package from its source runs its code; with `wheels_only` none is built.
    """
    dependencies = _own_packages(metadata)
    if wheels_only:
        _refuse_addresses(dependencies)
    minor = python_minor(metadata)
    if not dependencies and minor == HERE:
        return Path(sys.executable)
    base = find_interpreter(minor)
    root = Path(cache_root)
    root.mkdir(parents=True, exist_ok=True)
    home = root / venv_name(metadata)
    with open(lock_file(root / f"{home.name}.lock", wait=inf)):
        if (home / COMPLETE).exists():
            (home / COMPLETE).touch()
        else:
            shutil.rmtree(home, ignore_errors=True)
            _create(home, base, minor, dependencies, ["--only-binary", ":all:"] if wheels_only else [])
    return home / "bin" / "python"


def venv_name(metadata: BundleMetadata) -> str:
    """The folder of the bundle's environment under its `cache_root`."""
    minor = python_minor(metadata)
    # The running interpreter counts: its packages are shared with the environment. "readable": earlier environments
    # could not be read by the user of a sandbox.
    shared = sys.prefix if minor == HERE else ""
    parts = ["readable", minor, benchmax.__version__, shared, *_own_packages(metadata)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _own_packages(metadata: BundleMetadata) -> list[str]:
    """The packages to install; benchmax itself is shared, and a second one would shadow it."""
    return [each for each in canonical_dependencies(metadata.pip_dependencies) if requirement_name(each) != "benchmax"]


def _refuse_addresses(dependencies: Sequence[str]) -> None:
    """Raise for packages with an address: pip builds them even when it is asked for wheels only."""
    if found := [each for each in dependencies if Requirement(each).url]:
        raise DependencyError(
            f"{', '.join(found)}: a platform with several users installs packages only as wheels from its index. "
            "Name the package and its version alone."
        )


def remove_unused(cache_root: str | Path, wanted: Collection[str], unused_seconds: float) -> list[str]:
    """Remove environments that were not requested for so long and are not in `wanted`; returns their names."""
    root, removed = Path(cache_root), []
    for mark in sorted(root.glob(f"*/{COMPLETE}")):
        home = mark.parent
        if home.name in wanted:
            continue
        # Whoever requests it now waits, and creates it again.
        with open(lock_file(root / f"{home.name}.lock", wait=inf)):
            if mark.exists() and mark.stat().st_mtime < time.time() - unused_seconds:
                mark.unlink()  # first: a removal that is interrupted leaves no finished environment
                shutil.rmtree(home)
                home.with_suffix(".log").unlink(missing_ok=True)
                removed.append(home.name)
    return removed


def _create(home: Path, base: Path, minor: str, dependencies: Sequence[str], options: Sequence[str]) -> None:
    """Build the environment in place, the file COMPLETE last."""
    log = home.with_suffix(".log")
    log.unlink(missing_ok=True)
    shared_pip = find_spec("pip") is not None
    try:
        _run([str(base), "-m", "venv", *(["--without-pip"] if shared_pip else []), str(home)], log)
        packages = list(dependencies)
        _share_packages(home, minor)
        if minor != HERE:
            packages += _light_requirements()
        if packages:
            python = str(home / "bin" / "python")
            pip = [sys.executable, "-m", "pip", "--python", python] if shared_pip else [python, "-m", "pip"]
            _run([*pip, "install", "--no-input", "--disable-pip-version-check", *options, *packages], log)
        (home / COMPLETE).touch()
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def _run(command: Sequence[str], log: Path) -> None:
    pip_settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = {**scrubbed_environment(), **pip_settings}
    try:
        with open(log, "ab") as output:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                timeout=INSTALL_SECONDS, check=False, umask=0o022,
            )  # fmt: skip
        failure = f"exit code {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"not finished after {INSTALL_SECONDS:g} s"
    if failure:
        lines = log.read_text("utf-8", "replace").splitlines()
        tail = "\n".join(lines[-SHOWN_LINES:])
        raise DependencyError(
            f"The environment's packages could not be installed ({failure}):\n{tail}\n"
            f"{_cause(lines)} The whole output is in {log}."
        )


def _cause(lines: Sequence[str]) -> str:
    """The cause of pip's failure, and what to do about it."""
    ways = "Give the platform's process PIP_INDEX_URL, or PIP_FIND_LINKS with a folder of wheels"
    if any(sign in line for line in lines for sign in _UNREACHABLE):
        return f"The package index cannot be reached from this machine. {ways}."
    if any("No matching distribution" in line for line in lines):
        if os.environ.get("PIP_NO_INDEX"):
            return (
                f"No package index was asked, because PIP_NO_INDEX is set. Unset it, or: {ways[0].lower()}{ways[1:]}."
            )
        return (
            "No package index that was asked has such a package for this Python: correct pip_dependencies. If it is on "
            f"another index: {ways[0].lower()}{ways[1:]}."
        )
    return "Correct pip_dependencies."


def _share_packages(home: Path, minor: str) -> None:
    """Put the running interpreter's packages on the path, after the environment's own.

    For another Python minor version, benchmax alone: packages that are built for this one must not be visible.
    """
    root = Path(benchmax.__file__).parents[1]
    paths = [str(root), *package_folders()]
    if minor != HERE:
        if root.name in ("site-packages", "dist-packages"):
            (home / "shared").mkdir()
            (home / "shared").chmod(0o755)
            (home / "shared" / "benchmax").symlink_to(root / "benchmax")
            root = home / "shared"
        paths = [str(root)]
    file = home / "lib" / f"python{minor}" / "site-packages" / "zz_benchmax.pth"
    file.write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
    file.chmod(0o644)


def _light_requirements() -> list[str]:
    try:
        declared = [each for each in requires("benchmax") or () if "extra ==" not in each]
    except PackageNotFoundError:
        declared = ["aiohttp", "jsonschema", "pydantic", "referencing"]
    return canonical_dependencies([*declared, "cloudpickle>=3", "packaging>=24"])
