"""What servers may read: the system, the interpreters, the workdir; no other rollout, no one's keys.

Landlock knows only what is allowed. So everything under `/` is listed, less what is to stay closed: temporary folders,
shared memory, this agent's own folder, and in the user's home all hidden files but those of language tools. Paths that
the configuration names are open, for whoever wrote them there meant them to be read. Of the workdir everything is, but
what scores and configures.
"""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmax.envs.mcp.confine import landlock_version
from benchmax.envs.mcp.nurseries import Rules
from benchmax.envs.mcp.workdir import CONFIG_NAMES, REWARD_FILE, SETUP_FILE, Workdir

CLOSED = ("/tmp", "/var/tmp", "/dev/shm", "/run/user", "/run/secrets", "/boot", "/lost+found")
TOOLS = frozenset(
    {".asdf", ".bun", ".cache", ".cargo", ".conda", ".deno", ".local", ".npm", ".nvm", ".pyenv", ".rustup", ".rye",
     ".venv", ".virtualenvs", ".volta", ".yarn"}
)  # fmt: skip
"""Hidden folders of a home in which interpreters and packages lie."""


def rules_for(workdir: Workdir, root: Path, path: str) -> Rules:
    """What the servers of this workdir may read, apart from their own directories under `root`."""
    private = (REWARD_FILE, SETUP_FILE, *CONFIG_NAMES)
    closed = {Path(each) for each in CLOSED} | {root, *_hidden(Path.home())}
    if workdir.path not in (Path("/"), Path.home()):
        closed |= {workdir.path / name for name in private}
    closed |= {each.resolve() for each in closed}
    found = [*_without(Path("/"), closed), *_without(workdir.path, closed), *_interpreters(path)]
    found += _named(workdir, closed)
    return Rules(tuple(dict.fromkeys(map(str, found))), landlock_version() > 0)


def _without(folder: Path, closed: set[Path]) -> Iterator[Path]:
    """The folder, or if something in it is closed, the rest of it piece by piece."""
    if folder in closed:
        return
    if not any(each.is_relative_to(folder) for each in closed):
        yield folder
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            yield from _target(entry, closed)
        elif not entry.is_dir():
            if entry not in closed:
                yield entry
        else:
            yield from _without(entry, closed)


def _target(link: Path, closed: set[Path]) -> Iterator[Path]:
    """Where a link leads, for landlock opens that and not the link; never to what is closed, nor to what holds it."""
    target = link.resolve()
    inside = [each for each in closed if target.is_relative_to(each) or each.is_relative_to(target)]
    if link not in closed and not inside:
        yield target


def _hidden(home: Path) -> Iterator[Path]:
    try:
        yield from (each for each in home.iterdir() if each.name.startswith(".") and each.name not in TOOLS)
    except OSError:
        return


def _interpreters(path: str) -> Iterator[Path]:
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), *sys.path}
    yield from (Path(each) for each in prefixes if os.path.isabs(each))
    for name in ("python", "python3", "node"):
        if (found := shutil.which(name, path=path)) is not None:
            yield from _prefixes(Path(found))


def _prefixes(program: Path) -> Iterator[Path]:
    """Where a program's libraries lie: beside its bin folder or in node_modules, also where links lead."""
    for each in (program, program.resolve()):
        yield each
        yield from (above for above in each.parents if above.name == "node_modules")
        if each.parent.name == "bin" and each.parent.parent != Path("/"):
            yield each.parent.parent


def _named(workdir: Workdir, closed: Iterable[Path]) -> Iterator[Path]:
    shut = set(closed)
    for spec in workdir.servers:
        filled = spec.filled({"sync_workdir": str(workdir.path)})
        if filled.command and "/" in filled.command:
            yield from _prefixes(Path(filled.command))
        for text in (*filled.args, *filled.env.values()):
            path = Path(text)
            if not path.is_absolute() or path in shut or path.is_relative_to(workdir.path) or not os.path.exists(path):
                continue
            yield from _prefixes(path) if path.is_file() else [path]
            if path.is_file() and path.suffix:  # a script: what it imports lies beside it
                yield path.parent
