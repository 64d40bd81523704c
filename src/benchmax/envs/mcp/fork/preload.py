"""Imports a Python server's packages before the server runs, in the process from which servers are forked.

Packages installed for the interpreter are imported here, in an empty directory, confined like the servers, with the
server's own arguments and variables. Modules beside the server are not, as they may read the working directory or open
files when imported; their own imports are followed instead.

What differs between rollouts, or would be lost or shared in a fork, is watched: the directories and the arguments and
variables that name them, process ids, random numbers, files that are written or kept open, shared memory, programs that
are run, connections and threads. A package that uses one of these when imported is excluded, and so is every package
that imports it: the servers import them themselves. As nothing can be unimported, the fork server restarts without
them. System calls of compiled code are not seen.

Runs under any Python from 3.9 with the standard library alone. Linux only.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import os
import random
import runpy
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ALWAYS_IMPORTED = (
    "anyio._backends._asyncio",
    "asyncio",
    "concurrent.futures.thread",
    "encodings.idna",
    "logging.config",
)
_IMPORTED_WITH = {
    "mcp": (
        "mcp.server.stdio", "mcp.server.lowlevel.server", "mcp.server.mcpserver", "mcp.server.fastmcp.server",
        "rich.console", "rich.logging", "rich.traceback", "rich.syntax",
        "pygments.lexers.python", "pygments.styles.default",
    ),
    "uvicorn": ("uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.lifespan.on"),
    "fastmcp": ("fastmcp.server.server", "mcp.server.stdio"),
}  # fmt: skip
"""By package: modules that a server of it imports only when it runs."""
_MOST_FILES = 200
_READ, _COPY = 1, 3
"""mmap.ACCESS_READ and mmap.ACCESS_COPY."""
_STANDARD = frozenset(getattr(sys, "stdlib_module_names", ()))
ARGUMENTS = "$arguments"
"""Stands for the server's arguments among the names of variables."""
CWD = "asks for the working directory"
_EVENTS = {
    **dict.fromkeys(("subprocess.Popen", "os.system", "os.fork", "os.posix_spawn", "os.exec"), "runs another program"),
    **dict.fromkeys(("socket.connect", "socket.bind"), "opens a connection"),
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod",
                     "os.truncate", "tempfile.mkstemp", "tempfile.mkdtemp"), "changes files"),
    "os.chdir": "changes the working directory",
    "mmap.__new__": "shares memory",
}  # fmt: skip
"""Audit events that exclude a package whatever their arguments."""
RANDOM = "draws random numbers"
THREAD, KEPT = "starts a thread", "keeps a file or a connection open"
SEEN_AFTERWARDS = (THREAD, KEPT)
"""Seen only after an import, so that it may be due to the module or to anything it imports."""
_HARMLESS = {
    ("rich", CWD),  # kept in one variable, see _renew
    ("urllib3", "opens a connection"),  # to see whether there is IPv6, and closes it
    *((name, RANDOM) for name in ("rich", "opentelemetry")),  # for names that only they use
}
_code: dict[str, types.CodeType] = {}


def split_command(arguments: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """The kind, target and own arguments of a command line after `python`; None when it cannot be forked."""
    rest = list(arguments)
    while rest and rest[0] in ("-u", "-B", "-s", "-E", "-I", "-P"):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return "module", rest[1], rest[2:]
    if rest and not rest[0].startswith("-"):
        return "script", rest[0], rest[1:]
    return None


class Excluded(BaseException):
    """An excluded package was imported. Not an Exception, so that no package can hide it."""


class ImportWatch:
    """Notices what packages use while they are imported, and refuses the import of excluded ones."""

    def __init__(self, own: str, varying: Sequence[str], excluded: Mapping[str, str]) -> None:
        self._own = own
        self._varying = frozenset(varying)
        self.excluded = dict(excluded)
        """Packages that servers import themselves, and why."""
        self.found: dict[str, str] = {}
        """Further packages to exclude, found in this process."""
        self.on = False
        self._replaced: list[tuple[Any, str, Any]] = []
        sys.addaudithook(self._audit)

    def begin(self, arguments: Sequence[str]) -> None:
        environment, varying, note = type(os.environ), self._varying, self.note

        class Variables(environment):  # type: ignore[misc, valid-type]
            def __getitem__(self, key: Any) -> Any:
                if isinstance(key, (str, bytes)) and os.fsdecode(key) in varying:
                    note(f"reads the variable {os.fsdecode(key)}")
                return super().__getitem__(key)

        class Arguments(list):  # type: ignore[type-arg]
            def __getitem__(self, index: Any) -> Any:
                if index != 0:
                    note("reads the arguments")
                return super().__getitem__(index)

            def __iter__(self) -> Any:
                note("reads the arguments")
                return super().__iter__()

        sys.argv = Arguments(arguments) if ARGUMENTS in varying else list(arguments)
        self._environment = environment
        for each in (os.environ, os.environb):
            setattr(each, "__class__", Variables)  # noqa: B010 - of both, though their types differ
        for place, name, what in (
            (os, "getcwd", CWD), (os, "getcwdb", CWD), (os, "getpid", "asks for its process id"),
            (os, "urandom", RANDOM), (random, "_urandom", RANDOM), (random.Random, "seed", RANDOM),
            (threading, "_start_new_thread", THREAD), (threading, "_start_joinable_thread", THREAD),
            *((random, each, RANDOM) for each in random.__all__ if each.islower()),
        ):  # fmt: skip
            self._replace(place, name, what)
        sys.meta_path.insert(0, self)
        sys.dont_write_bytecode = True
        self.on = True

    def end(self) -> None:
        self.on = False
        for each in (os.environ, os.environb):
            setattr(each, "__class__", self._environment)  # noqa: B010
        for place, name, function in self._replaced:
            setattr(place, name, function)
        sys.meta_path.remove(self)
        sys.dont_write_bytecode = False

    def _replace(self, place: Any, name: str, what: str) -> None:
        """Note calls of a function that raises no audit event."""
        function = getattr(place, name, None)
        if function is None:  # not in this Python
            return

        def noted(*given: Any, **named: Any) -> Any:
            if name != "seed" or not any(each is not None for each in (*given[1:], *named.values())):
                self.note(what)  # a given seed is the same in all servers
            return function(*given, **named)

        self._replaced.append((place, name, function))
        setattr(place, name, noted)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """A module finder that finds nothing and refuses excluded packages."""
        top = name.partition(".")[0]
        if top in self.excluded:
            self.note(f"imports {top}, which {self.excluded[top]}")
            raise Excluded(name)

    def note(self, what: str) -> None:
        """Exclude the package that is being imported, and its importers; the standard library is harmless."""
        if not self.on:
            return
        importing = []
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") in sys.modules:
                importing.append(frame.f_globals["__name__"].partition(".")[0])
            frame = frame.f_back
        if not importing or importing[0] in _STANDARD or importing[0] == "__main__":
            return
        if (importing[0], what) in _HARMLESS:
            return
        self.found.setdefault(importing[0], what)
        for name in importing[1:]:
            if name not in _STANDARD and name != "__main__":
                self.found.setdefault(name, f"imports {importing[0]}, which {self.found[importing[0]]}")

    def blame(self, name: str, what: str) -> None:
        """Exclude a module for an effect that was seen only after its import."""
        self.found.setdefault(name.partition(".")[0], what)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            self._opened(*arguments)
        elif event in ("os.listdir", "os.scandir"):
            if self._is_own(arguments[0]):
                self.note("lists the working directory")
        elif event == "mmap.__new__" and arguments[0] != -1 and arguments[2] in (_READ, _COPY):
            return  # a file that is only read
        elif event == "sqlite3.connect":
            if arguments[0] not in (":memory:", b":memory:"):
                self.note(f"opens the database {_shown(arguments[0])}")
        elif event in _EVENTS:
            self.note(_EVENTS[event])

    def _opened(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int) or path in ("/dev/null", b"/dev/null"):
            return
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or (isinstance(mode, str) and set(mode) & set("wax+")):
            self.note(f"writes {_shown(path)}")
        elif self._is_own(path):
            self.note(f"opens {_shown(path)}")

    def _is_own(self, path: Any) -> bool:
        if path is None:
            return True
        if isinstance(path, int):
            return False
        text = os.fsdecode(path)
        return not text.startswith("/") or text.startswith(self._own)


def _shown(path: Any) -> str:
    return os.path.basename(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else str(path)


def preload(watch: ImportWatch, kind: str, target: str, also: Sequence[str], known: Sequence[str] = ()) -> str | None:
    """Import what the server will import. Returns why it cannot be forked, or None.

    `known`: modules imported by an earlier round, most of which are wanted even if their importer is now excluded.
    """
    seen = _Footprint()
    gc.disable()
    if kind == "script":
        sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
    for name in (*known, *_imports_of(kind, target, also)):
        _try_import(name)
        for what in seen.grown():
            watch.blame(name, what)
    for package, names in _IMPORTED_WITH.items():
        if package in sys.modules:
            for name in names:
                _try_import(name)
    for name in _ALWAYS_IMPORTED:
        _try_import(name)
    if kind == "script":
        _compile(target)
    gc.collect()
    gc.freeze()
    return None if _threads() == 1 else f"its packages start {_threads() - 1} threads when imported"


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


class _Footprint:
    """Threads and descriptors that imported modules leave in the process."""

    def __init__(self) -> None:
        self._threads, self._files = _threads(), _open_files()

    def grown(self) -> list[str]:
        """What has been added since the last call."""
        threads, files = self._threads, self._files
        self._threads, self._files = _threads(), _open_files()
        grown = {THREAD: self._threads > threads, KEPT: bool(self._files - files)}
        return [what for what in SEEN_AFTERWARDS if grown[what]]


def _open_files() -> set[str]:
    """Descriptors of this process with their targets, except devices without state."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + fd)
        except OSError:  # the listing's own
            continue
        if target not in ("/dev/null", "/dev/urandom", "/dev/random"):
            found.add(fd + " " + target)
    return found


def _try_import(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException:  # the server will raise it again, where it is reported
        pass


def _imports_of(kind: str, target: str, also: Sequence[str]) -> list[str]:
    """Installed modules that the server imports, directly or through modules beside it."""
    found: list[str] = []
    queue: list[str] = list(also)
    seen: set[str] = set()
    if kind == "script":
        queue.append(os.path.abspath(target))
    else:
        found += _module_files(target, queue)
    while queue and len(seen) < _MOST_FILES:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in _import_names(path):
            local = _local_file(name)
            if local is None:
                found.append(name)
            else:
                queue.append(local)
    return found


def _module_files(target: str, queue: list[str]) -> list[str]:
    """For `-m package`: the installed package, whose __main__ imports the rest."""
    try:
        spec = importlib.util.find_spec(target)
        if spec is not None and spec.submodule_search_locations is not None:
            main = importlib.util.find_spec(target + ".__main__")
            if main is not None and main.origin:
                queue.append(main.origin)
            return [target]
        if spec is not None and spec.origin:
            queue.append(spec.origin)
    except BaseException:
        pass
    return []


def _local_file(name: str) -> str | None:
    """The file of a module in the server's own folder."""
    base = os.path.join(sys.path[0] or ".", *name.split("."))
    for path in (base + ".py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            return path
    return None


def _import_names(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    package = os.path.basename(os.path.dirname(path)) if os.path.basename(path) == "__main__.py" else ""
    names: list[str] = []
    for node in _outside_functions(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module)
        elif isinstance(node, ast.ImportFrom) and package and node.level == 1:
            names.append(package + "." + node.module if node.module else package)
    return names


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Statements that run when the module is imported."""
    queue: list[ast.AST] = list(tree.body)
    while queue:
        node = queue.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            queue += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]


def _compile(path: str) -> types.CodeType | None:
    """Compile a script once; errors are raised when it runs."""
    try:
        with open(path, "rb") as file:
            _code[path] = compile(file.read(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        pass
    return _code.get(path)


def run(kind: str, target: str, arguments: Sequence[str]) -> None:
    """Run the server in this process, as `python` would."""
    gc.enable()
    _renew()
    sys.argv = [target, *arguments]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [sys.executable, *(("-m", target) if kind == "module" else (target,)), *arguments]
    if kind == "function":
        importlib.import_module(target).main()
    elif kind == "module":
        sys.path.insert(0, os.getcwd())
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    else:
        main = types.ModuleType("__main__")
        main.__dict__.update({"__file__": target, "__builtins__": __builtins__})
        sys.modules["__main__"] = main
        code = _compile(target) if target not in _code else _code[target]
        if code is None:
            runpy.run_path(target, run_name="__main__")  # raises Python's own error
        else:
            exec(code, main.__dict__)  # noqa: S102 - the server's own script, as `python script.py` runs it


def _renew() -> None:
    """Renew what imported packages hold and what must differ between servers."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # else all servers draw the same numbers
    if hasattr(sys.modules.get("rich"), "_IMPORT_CWD"):
        setattr(sys.modules["rich"], "_IMPORT_CWD", os.getcwd())  # noqa: B010 - it is not in its types
