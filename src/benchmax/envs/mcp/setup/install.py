"""Runs setup.sh before the first server starts; what it installs is removed with the agent, or kept in a cache.

With a cache it runs once for its content, and its results are kept for later agents (cache.py). A script that leaves
programs running is run each time, as those end with the agent.

`python`, `pip` and `uv pip` in the script use a virtual environment of the agent, which also sees the packages of the
one that runs benchmax. Servers whose command is `python` run in it, and so do the rewards.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from benchmax.envs.mcp.setup.cache import CacheEntry, SetupCache, changes_since, snapshot
from benchmax.envs.mcp.workdir import SETUP_FILE, Workdir, open_to_servers
from benchmax.errors import EnvDefinitionError
from benchmax.files.logs import tail
from benchmax.package_folders import package_folders

SETUP_SECONDS = 1_800.0
_LINES, _TAIL_BYTES = 20, 65_536
_END_SECONDS = 2.0
"""How long programs that setup.sh started may take to end before they count as left running."""

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Installed:
    """What setup.sh installed, and where programs are found now."""

    path: str
    python: str
    folders: tuple[Path, ...] = ()
    """What servers have to read in addition to the workdir."""
    listed: tuple[Path, ...] = ()
    """Folders in which they may only list names."""
    entry: CacheEntry | None = None
    """Where it is kept, if it is."""


async def install(
    workdir: Workdir,
    root: Path,
    cache: SetupCache | None = None,
    again: bool = False,
    report: Report = lambda event: None,
) -> Installed:
    """Run the workdir's setup.sh, unless it is empty or its result is cached; `report` is called when it runs."""
    if workdir.setup_script is None:
        return Installed(_usual_path(), sys.executable)
    if cache is None:
        await _run_in(workdir.path, root)
        await asyncio.to_thread(_open_up, root, root / "venv")
        return _installed(root / "venv")
    entry = None if again else cache.find()
    if entry is None:
        async with cache.building():
            entry = None if again else cache.find()  # another process may have run it meanwhile
            entry = entry or await _build(workdir, cache, again, report)
    entry.changes.apply(entry.copy, workdir.path)
    return _installed(entry.venv, entry)


def _usual_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _installed(venv: Path, entry: CacheEntry | None = None) -> Installed:
    path = os.pathsep.join([str(venv / "bin"), _usual_path()])
    read, listed = ([venv], ()) if entry is None else (entry.readable, (entry.copy,))
    return Installed(path, str(venv / "bin" / "python"), tuple(read), listed, entry)


async def _build(workdir: Workdir, cache: SetupCache, again: bool, report: Report) -> CacheEntry:
    """Run setup.sh in a folder of the cache."""
    report({"setup": "begins", "again": again})
    began = monotonic()
    entry = await asyncio.to_thread(cache.begin)
    try:
        before = await asyncio.to_thread(snapshot, entry.copy)
        await _run_in(entry.copy, entry.folder)
        await asyncio.to_thread(_open_up, entry.folder, entry.copy, entry.venv)
        entry.changes = await asyncio.to_thread(changes_since, before, entry.copy, workdir.path)
        if not await _leaves_programs():
            await asyncio.to_thread(cache.keep, entry)
    except BaseException:
        entry.kept = False
        entry.close()
        raise
    report({"setup": "ends", "seconds": monotonic() - began, "kept": entry.kept})
    return entry


def _open_up(above: Path, *folders: Path) -> None:
    os.chmod(above, 0o700)
    for folder in folders:
        open_to_servers(folder)


async def _leaves_programs() -> bool:
    """Whether a program that setup.sh started still runs; as an orphan it is a child of this process."""
    until = monotonic() + _END_SECONDS
    while any(map(_is_alive, psutil.Process().children())):
        if monotonic() > until:
            return True
        await asyncio.sleep(0.05)
    return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def _run_in(folder: Path, root: Path) -> None:
    """Run the setup.sh of a folder with a virtual environment in `root`."""
    venv = root / "venv"
    await asyncio.to_thread(_make_venv, venv)
    path = os.pathsep.join([str(venv / "bin"), _usual_path()])
    await _run(folder, {**os.environ, "PATH": path, "VIRTUAL_ENV": str(venv)}, root / "setup.log")


def _make_venv(folder: Path) -> None:
    import venv

    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    inner = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    source = str(Path(__file__).resolve().parents[4])  # an editable benchmax is not in site-packages
    Path(inner, "_benchmax_agent.pth").write_text("\n".join((*package_folders(), source, "")), encoding="utf-8")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m pip "$@"\n', encoding="utf-8")
    pip.chmod(0o755)


async def _run(folder: Path, variables: dict[str, str], log: Path) -> None:
    if shutil.which("bash") is None:
        raise EnvDefinitionError("setup.sh needs bash, which is not on the PATH. Install it.")
    with log.open("wb") as output:  # a pipe would be held open by a service that the script started
        process = await asyncio.create_subprocess_exec(
            "bash", str(folder / SETUP_FILE), cwd=folder, env=variables, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    try:
        await asyncio.wait_for(process.wait(), SETUP_SECONDS)
    except TimeoutError:
        raise EnvDefinitionError(f"setup.sh took longer than {SETUP_SECONDS:g} s. Make it faster.") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 9)
            await process.wait()
    if process.returncode:
        last = tail(log, _LINES, most=_TAIL_BYTES)
        raise EnvDefinitionError(
            f"setup.sh failed with exit code {process.returncode}. Its last lines were:\n{last}\n"
            "Correct setup.sh, or what it needs on this machine."
        )
