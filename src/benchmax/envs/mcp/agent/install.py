"""setup.sh, run once on each machine: what it installs lies in a folder that goes away with the agent.

`python`, `pip` and `uv pip` in the script mean a virtual environment of the agent's own, which sees the packages of the
one that runs benchmax. Servers whose command is `python` run in it, and so do the rewards.
"""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from benchmax.envs.mcp.workdir import Workdir
from benchmax.errors import EnvDefinitionError

SETUP_SECONDS = 1_800.0
_LINES, _TAIL_BYTES = 20, 65_536


@dataclass(frozen=True, slots=True)
class Installed:
    """Where programs are found after setup."""

    path: str
    python: str
    folders: tuple[Path, ...] = ()
    """What servers must be able to read besides the workdir."""


async def install(workdir: Workdir, root: Path) -> Installed:
    """Run the workdir's setup.sh, when there is anything in it."""
    usual = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if workdir.setup_script is None:
        return Installed(usual, sys.executable)
    folder = root / "venv"
    await asyncio.to_thread(_make_venv, folder)
    path = os.pathsep.join([str(folder / "bin"), usual])
    await _run(workdir, {**os.environ, "PATH": path, "VIRTUAL_ENV": str(folder)}, root / "setup.log")
    return Installed(path, str(folder / "bin" / "python"), (folder,))


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


async def _run(workdir: Workdir, variables: dict[str, str], log: Path) -> None:
    assert workdir.setup_script is not None
    with log.open("wb") as output:  # not a pipe, whose end a service that the script started would hold open
        process = await asyncio.create_subprocess_exec(
            "bash", str(workdir.setup_script), cwd=workdir.path, env=variables, start_new_session=True,
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
        raise EnvDefinitionError(
            f"setup.sh failed with exit code {process.returncode}. Its last lines were:\n{_tail(log)}\n"
            "Correct setup.sh, or what it needs on this machine."
        )


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-_LINES:])
