"""What setup.sh depends on: its text, the files of the workdir that it names, and the interpreter it runs beside.

A word of the script that is a file or folder of the workdir counts as named, and so do the usual manifests, which
package managers read by themselves. The script declares any other input in a comment:

    # inputs: data/*.csv schema.sql
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmax.envs.mcp.workdir import Workdir
from benchmax.errors import EnvDefinitionError

MANIFESTS = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", ".npmrc",
    "pyproject.toml", "setup.py", "setup.cfg", "uv.lock", "poetry.lock", "Pipfile.lock", "requirements*.txt",
    "Gemfile.lock", "go.mod", "go.sum", "Cargo.toml", "Cargo.lock",
)  # fmt: skip
_DECLARED = re.compile(r"^#\s*inputs:(.*)$", re.MULTILINE | re.IGNORECASE)
_WORD = re.compile(r"[^\s'\"`=;&|()<>{}$]+")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_OWN_VARIABLES = frozenset({"PATH", "PWD", "OLDPWD", "SHLVL", "VIRTUAL_ENV", "RANDOM", "SECONDS", "LINENO", "_"})
"""Set by the agent or the shell, and different each time."""


def setup_key(workdir: Workdir, origin: str) -> str:
    """A digest that changes when setup.sh has to run again. `origin` distinguishes workdirs with the same script."""
    assert workdir.setup_script is not None
    script = workdir.setup_script.read_bytes()
    text = script.decode("utf-8", "replace")
    digest = hashlib.sha256()
    for part in (origin, sys.version, sys.prefix, platform.machine(), *_variables(text)):
        _add(digest, part.encode("utf-8", "surrogateescape"))
    _add(digest, script)
    for file in sorted({file for each in inputs(workdir.path, text) for file in _inside(each)}):
        _add(digest, str(file.relative_to(workdir.path)).encode("utf-8", "surrogateescape"))
        _add_file(digest, file)
    return digest.hexdigest()[:32]


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    _add_file(digest, path)
    return digest.hexdigest()


def inputs(folder: Path, script: str) -> set[Path]:
    """Files and folders of the workdir that a script names, or that package managers read by themselves."""
    found = {each for name in MANIFESTS for each in folder.glob(name)}
    for word in _WORD.findall(script):
        named = os.path.normpath(folder / word)
        if not word.startswith(("/", "#")) and Path(named).is_relative_to(folder) and os.path.exists(named):
            found.add(Path(named))
    for pattern in (word for line in _DECLARED.findall(script) for word in line.split()):
        if pattern.startswith("/") or not (matched := set(folder.glob(pattern))):
            raise EnvDefinitionError(
                f"setup.sh declares the input {pattern!r}, which is not in the workdir. Correct the `# inputs:` line."
            )
        found |= matched
    return found


def _inside(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for place, folders, names in os.walk(path):
        yield from (Path(place, name) for name in names)
        yield from (Path(place, name) for name in folders if Path(place, name).is_symlink())


def _variables(script: str) -> Iterator[str]:
    """Environment variables that the script names, with their values."""
    for name in sorted(set(_VARIABLE.findall(script)) - _OWN_VARIABLES):
        if name in os.environ:
            yield f"{name}={os.environ[name]}"


def _add(digest: hashlib._Hash, data: bytes) -> None:
    digest.update(len(data).to_bytes(8, "big") + data)


def _add_file(digest: hashlib._Hash, path: Path) -> None:
    if path.is_symlink():
        _add(digest, b"link " + os.fsencode(os.readlink(path)))
        return
    with path.open("rb") as file:
        _add(digest, hashlib.file_digest(file, "sha256").digest())
