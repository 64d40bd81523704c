"""A Python server, made ready before it is needed: its packages imported, itself not begun.

Runs in the parent from which servers are forked, under any Python from 3.9, with the standard library alone. Packages
installed for the interpreter are imported here. Modules that lie beside the server are not, for they may look at the
working directory or open files when imported; their own imports are followed instead.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import os
import runpy
import sys
import types
from collections.abc import Iterator, Sequence

_USUAL = ("anyio._backends._asyncio", "asyncio", "concurrent.futures.thread", "encodings.idna", "logging.config")
_WITH = {
    "mcp": (
        "mcp.server.stdio", "mcp.server.lowlevel.server", "mcp.server.mcpserver", "mcp.server.fastmcp.server",
        "rich.console", "rich.logging", "rich.traceback", "rich.syntax",
        "pygments.lexers.python", "pygments.styles.default",
    ),
    "uvicorn": ("uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.lifespan.on"),
    "fastmcp": ("fastmcp.server.server", "mcp.server.stdio"),
}  # fmt: skip
_MOST_FILES = 200
_code: dict[str, types.CodeType] = {}


def split_command(arguments: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """(kind, target, the server's own arguments) of what follows `python`, or None when it cannot be forked."""
    rest = list(arguments)
    while rest and rest[0] in ("-u", "-B", "-s", "-E", "-I", "-P"):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return "module", rest[1], rest[2:]
    if rest and not rest[0].startswith("-"):
        return "script", rest[0], rest[1:]
    return None


def preload(kind: str, target: str, also: Sequence[str] = ()) -> str | None:
    """Import what the server will import. Gives the reason why it cannot be forked, or None."""
    gc.disable()
    if kind == "script":
        sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
    for name in _imports_of(kind, target, also):
        _try_import(name)
    for package, names in _WITH.items():
        if package in sys.modules:
            for name in names:
                _try_import(name)
    for name in _USUAL:
        _try_import(name)
    if kind == "script":
        _compile(target)
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    return None if threads == 1 else f"its packages start {threads - 1} threads when imported"


def _try_import(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException:  # the server itself will say what is wrong, where it is seen
        pass


def _imports_of(kind: str, target: str, also: Sequence[str]) -> list[str]:
    """Installed modules that the server imports, through those of its modules that are not installed."""
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
    """For `-m package`: the package itself is installed, and its __main__ names the rest."""
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
    """The file of a module that lies in the server's own folder."""
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
    """The script's code, read once; what is wrong with it is said when it runs."""
    try:
        with open(path, "rb") as file:
            _code[path] = compile(file.read(), path, "exec")
    except (OSError, SyntaxError, ValueError):
        pass
    return _code.get(path)


def run(kind: str, target: str, arguments: Sequence[str]) -> None:
    """Be the server: run it as `python` would, in this process."""
    gc.enable()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # or all servers would draw the same numbers
    sys.argv = [target, *arguments]
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
            runpy.run_path(target, run_name="__main__")  # raises what Python says of it
        else:
            exec(code, main.__dict__)  # noqa: S102 - the server's own script, as `python script.py` runs it
