"""Which paths servers may read: the system, the interpreters, the workdir, their own program, and what `read` names.

The sandbox shows few folders, and Landlock opens of them what is listed here: an argument or a variable that is a path
opens nothing, nor does a link in the workdir. Homes, temporary folders, mounted disks and what the system itself keeps
from most users, such as /etc/shadow, stay closed, and so do other rollouts and the files that score and configure, even
inside a folder that `read` names.

Rewards are the user's own code and read more: everything but temporary folders, the agent's folder and hidden files.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from benchmax.envs.mcp.fork.python_program import shebang
from benchmax.envs.mcp.fork.server_sandbox import SandboxRules
from benchmax.envs.mcp.server_config import ServerSpec
from benchmax.envs.mcp.workdir import PRIVATE_NAMES, Workdir
from benchmax.errors import EnvDefinitionError
from benchmax.package_folders import package_folders
from benchmax.sandbox.inside.landlock import version as landlock_version

SYSTEM = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/nix", "/gnu", "/snap",
    "/proc", "/sys", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/nscd",
    "/var/cache/fontconfig", "/var/lib/ca-certificates",
)  # fmt: skip
"""Programs, libraries and settings of the system."""
SHOWN = ("/etc", "/opt", "/nix", "/gnu", "/snap", "/sys/devices/system/cpu", "/var/cache/fontconfig")
"""Of these, what a sandbox shows beside the folders of programs and libraries: no sockets."""
CLOSED = ("/tmp", "/var/tmp", "/dev/shm", "/run/user", "/run/secrets", "/boot", "/lost+found")
_GUARDED = ("/etc", "/opt")
"""Files in these that not every user may read are closed to all servers."""
_PROGRAM_FOLDERS = ("bin", "lib", "lib64", "libexec", "include", "pyvenv.cfg")
"""What belongs to a program in PREFIX/bin; PREFIX itself may be a home."""
_RUNS_SCRIPTS = ("python", "node", "bun", "deno", "ruby", "perl", "php", "java", "sh", "bash")
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that servers inherit, and whose files they may read."""


def server_rules(workdir: Workdir, root: Path, path: str) -> SandboxRules:
    """What every server of this workdir may read, in addition to its own directory under `root`."""
    shut = _never_readable(workdir, root)
    closed = shut | {*map(Path, CLOSED), Path("/root"), Path("/home"), Path.home()}
    closed |= {each.resolve() for each in closed}
    found = [part for folder in SYSTEM for part in _without(Path(folder), closed) if os.path.exists(part)]
    found += _inside(workdir.path, shut)
    certificates = (file for name in CERTIFICATES if os.path.isfile(file := os.environ.get(name, "")))
    more = [*_interpreters(path), *map(Path, certificates)]
    listed = (str(workdir.path), *_GUARDED)
    hidden = _texts(shut - _private())  # those are closed by their modes and by Landlock, and many
    shown = _texts([*SHOWN, workdir.path, *more])
    return SandboxRules(_texts([*found, *more]), landlock_version() > 0, listed, shown, hidden)


def _texts(paths: Iterable[str | Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, paths)))


def reward_rules(workdir: Workdir, root: Path, path: str) -> SandboxRules:
    """What the functions of reward_fn.py may read."""
    closed = {root, *map(Path, CLOSED), *_hidden(Path.home()), *_private()}
    closed |= {each.resolve() for each in closed}
    found = [*_without(Path("/"), closed), workdir.path, *_interpreters(path)]
    return SandboxRules(_texts(found), landlock_version() > 0)


def extra_paths(spec: ServerSpec, workdir: Workdir, root: Path, path: str) -> tuple[str, ...]:
    """What one server may also read: its program, and what its `read` names."""
    shut = _never_readable(workdir, root)
    found = [*_program_of(spec, path)]
    for text in spec.read:
        named = Path(os.path.expanduser(text))
        if not named.is_absolute() or not os.path.exists(named):
            raise EnvDefinitionError(
                f"MCP server {spec.name!r}: read names {text!r}, which is not there. Correct it, or create the path."
            )
        if named.resolve() == Path("/"):
            raise EnvDefinitionError(f"MCP server {spec.name!r}: read names the whole disk. Name folders.")
        found += _inside(named.resolve(), shut)
    kept = (each for each in found if not any(each.resolve().is_relative_to(one) for one in shut))
    return _texts(kept)


def shown_paths(spec: ServerSpec, path: str) -> tuple[str, ...]:
    """The same for what it sees, without what is closed inside."""
    return _texts([*_program_of(spec, path), *map(os.path.expanduser, spec.read)])


def unreadable_paths(spec: ServerSpec, read: tuple[str, ...], workdir: Path) -> list[str]:
    """Paths in a server's arguments and variables, and targets of links in the workdir, that it may not read."""
    texts = [part for text in (*spec.args, *spec.env.values()) for part in (text, text.partition("=")[2])]
    mentioned = [text for text in dict.fromkeys(texts) if text.startswith("/") and os.path.exists(text)]
    if (script := _script(spec)) is not None:
        mentioned.append(str(script.parent))
    mentioned += [str(each.resolve()) for each in _entries(workdir) if each.is_symlink() and each.exists()]
    return [text for text in mentioned if not any(Path(text).resolve().is_relative_to(each) for each in read)]


def _never_readable(workdir: Workdir, root: Path) -> set[Path]:
    """What no server may read even if it is named: other rollouts and agents, rewards and configuration, secrets."""
    shut = {workdir.path / name for name in PRIVATE_NAMES} | {root / "rollouts", root / "agent", *_private()}
    if not workdir.path.is_relative_to(root):
        shut.add(root)
    for folder in {root.parent, root.resolve().parent}:
        shut |= {each for each in _entries(folder) if each.name.startswith("benchmax-") and each != root}
    return shut | {each.resolve() for each in shut}


@cache
def _private() -> frozenset[Path]:
    """Files of the system that not every user may read, such as /etc/shadow; closed to servers of root, too."""
    found = set()
    for top in _GUARDED:
        for path, folders, files in os.walk(top):
            for name in [*folders, *files]:
                try:
                    mode = os.lstat(os.path.join(path, name)).st_mode
                except OSError:
                    continue
                if not stat.S_ISLNK(mode) and not mode & stat.S_IROTH:
                    found.add(Path(path, name))
                    if name in folders:
                        folders.remove(name)
            if top == "/opt":
                break  # it holds whole programs, whose files are not examined
    return frozenset(found)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _without(folder: Path, closed: set[Path]) -> Iterator[Path]:
    """The folder, or, if something in it is closed, its other entries."""
    if folder in closed:
        return
    if not any(each.is_relative_to(folder) for each in closed):
        yield folder
        return
    for entry in _entries(folder):
        if entry.is_symlink():
            yield from _target(entry, closed)
        elif not entry.is_dir():
            if entry not in closed:
                yield entry
        else:
            yield from _without(entry, closed)


def _inside(folder: Path, closed: set[Path]) -> Iterator[Path]:
    """The same, without targets of links outside the folder."""
    yield from (part for part in _without(folder, closed) if part.is_relative_to(folder))


def _target(link: Path, closed: set[Path]) -> Iterator[Path]:
    """The target of a link, as Landlock allows targets and not links; nothing if it is, or contains, a closed path."""
    target = link.resolve()
    inside = [each for each in closed if target.is_relative_to(each) or each.is_relative_to(target)]
    if link not in closed and not inside:
        yield target


def _hidden(home: Path) -> Iterator[Path]:
    yield from (each for each in _entries(home) if each.name.startswith(".") and each.name not in (".venv", ".local"))


def _interpreters(path: str) -> Iterator[Path]:
    """What Python, Node and programs on the path need, without the script's folder and without PYTHONPATH."""
    added = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), *([] if sys.flags.safe_path else sys.path[:1])}
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, *({*package_folders(), *sys.path} - added)}
    broad = {Path("/"), Path("/home"), Path.home()}
    for each in [*prefixes, *path.split(os.pathsep)]:
        if os.path.isabs(each) and os.path.exists(each) and Path(each) not in broad:
            yield Path(each)
    for name in ("python", "python3", "node"):
        if (found := shutil.which(name, path=path)) is not None:
            yield from _program(Path(found))


def _program_of(spec: ServerSpec, path: str) -> Iterator[Path]:
    """What a server's command runs: the program, its interpreter, and the script that an interpreter gets."""
    command = shutil.which(spec.command, path=path) if spec.command else None
    if command is not None:
        yield from _program(Path(command))
        if (interpreter := _interpreter_of(command, path)) is not None:
            yield from _program(interpreter)
    if (script := _script(spec)) is not None:
        yield from _program(script)


def _script(spec: ServerSpec) -> Path | None:
    """The script that the command, an interpreter, runs, if its path is absolute."""
    if not os.path.basename(spec.command or "").startswith(_RUNS_SCRIPTS):
        return None
    words = [arg for arg in spec.args if not arg.startswith("-") and arg != "run"]
    return Path(words[0]) if words and words[0].startswith("/") and os.path.isfile(words[0]) else None


def _interpreter_of(program: str, path: str) -> Path | None:
    """The interpreter in the first line of a script."""
    words = shebang(program)
    if words and os.path.basename(words[0]) == "env":
        found = shutil.which(words[-1], path=path)
        return Path(found) if found else None
    return Path(words[0]) if words and os.path.isfile(words[0]) else None


def _program(program: Path) -> Iterator[Path]:
    """A program, the target of its links, and its libraries, beside its bin folder or in node_modules."""
    for each in dict.fromkeys((program, program.resolve())):
        yield each
        yield from (above for above in each.parents if above.name == "node_modules")
        if each.parent.name == "bin":
            yield from (part for name in _PROGRAM_FOLDERS if os.path.exists(part := each.parent.parent / name))


def certificate_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that name certificate files, as they are set here."""
    return {name: variables[name] for name in CERTIFICATES if name in variables}
