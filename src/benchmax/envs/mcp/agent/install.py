"""setup.sh, run before the first server starts: what it installs lies in a folder that goes away with the agent.

With a cache it is run once for its content, and what it made is kept for the next agent (setup_cache.py). A script that
leaves programs running is run each time, as those end with the agent.

`python`, `pip` and `uv pip` in the script mean a virtual environment of the agent's own, which sees the packages of the
one that runs benchmax. Servers whose command is `python` run in it, and so do the rewards.
"""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from benchmax.envs.mcp.agent.setup_cache import Entry, SetupCache, snapshot
from benchmax.envs.mcp.fork.fork_server_client import living_children
from benchmax.envs.mcp.workdir import SETUP_FILE, Workdir
from benchmax.errors import EnvDefinitionError
from benchmax.files.logs import tail

SETUP_SECONDS = 1_800.0
_LINES, _TAIL_BYTES = 20, 65_536
_END_SECONDS = 2.0
"""How long what setup.sh started may take to end before it counts as left running."""

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Installed:
    """Where programs are found after setup."""

    path: str
    python: str
    folders: tuple[Path, ...] = ()
    """What servers must be able to read besides the workdir."""
    listed: tuple[Path, ...] = ()
    """Folders of which they may read the names alone."""
    entry: Entry | None = None
    """Where it is kept, if it is."""


async def install(
    workdir: Workdir, root: Path, cache: SetupCache | None = None, again: bool = False, tell: Tell = lambda what: None
) -> Installed:
    """Run the workdir's setup.sh, when there is anything in it and it was not run before; `tell` hears when it runs."""
    if workdir.setup_script is None:
        return Installed(_usual_path(), sys.executable)
    if cache is None:
        await _run_in(workdir.path, root)
        return _installed(root / "venv")
    entry = None if again else cache.find()
    if entry is None:
        async with cache.building():
            entry = None if again else cache.find()  # somebody else may have run it meanwhile
            entry = entry or await _build(workdir, cache, again, tell)
    entry.changes.apply(entry.copy, workdir.path)
    return _installed(entry.venv, entry)


def _usual_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _installed(venv: Path, entry: Entry | None = None) -> Installed:
    path = os.pathsep.join([str(venv / "bin"), _usual_path()])
    read, listed = ([venv], ()) if entry is None else (entry.readable, (entry.copy,))
    return Installed(path, str(venv / "bin" / "python"), tuple(read), listed, entry)


async def _build(workdir: Workdir, cache: SetupCache, again: bool, tell: Tell) -> Entry:
    """Run setup.sh in a folder of the cache."""
    tell({"setup": "begins", "again": again})
    began = monotonic()
    entry = await asyncio.to_thread(cache.begin)
    try:
        before = await asyncio.to_thread(snapshot, entry.copy)
        await _run_in(entry.copy, entry.folder)
        await asyncio.to_thread(entry.settle, before, workdir.path)
        if not await _leaves_programs():
            await asyncio.to_thread(cache.keep, entry)
    except BaseException:
        entry.kept = False
        entry.close()
        raise
    tell({"setup": "ends", "seconds": monotonic() - began, "kept": entry.kept})
    return entry


async def _leaves_programs() -> bool:
    """Whether something that setup.sh started still runs; what it left is this process's child."""
    until = monotonic() + _END_SECONDS
    while living_children():
        if monotonic() > until:
            return True
        await asyncio.sleep(0.05)
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
    ours = "\n".join(each for each in sys.path if each.endswith("site-packages"))
    source = Path(__file__).resolve().parents[4]  # an editable benchmax is not in site-packages
    Path(inner, "_benchmax_agent.pth").write_text(f"{ours}\n{source}\n", encoding="utf-8")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m pip "$@"\n', encoding="utf-8")
    pip.chmod(0o755)


async def _run(folder: Path, variables: dict[str, str], log: Path) -> None:
    with log.open("wb") as output:  # not a pipe, whose end a service that the script started would hold open
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
