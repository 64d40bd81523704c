"""Whether a bundle can be opened here, told from the names it refers to. Nothing of it is imported, called or run.

The opcodes of its pickle name what is imported when it is opened, the code in it names what is imported later, and so
does the source in its manifest. A name of benchmax is looked for in our own files, which are read and not imported.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import benchmax
from benchmax.bundle.errors import DependencyError, ValidationError
from benchmax.bundle.metadata import BundleMetadata, python_minor, requirement_name
from benchmax.bundle.opcodes import Global, Names, names_in
from benchmax.envs.catalogue import environments
from benchmax.published import HOMES

CAME_ALONG = {"openai": "openai", "httpx": "httpx", "datasets": "datasets", "json_repair": "json-repair"}
"""Modules that were there with the published package, so that its bundles do not declare them, and their packages."""
RIVALS = frozenset({"castform", "cgft"})
"""Packages that bring a benchmax of their own, which cannot be opened beside this one."""
SOURCE_CHARS = 200_000
"""Looked at of a source; its tree takes some five hundred times as many bytes."""
_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
_ALWAYS_THERE = frozenset({"benchmax", "__main__", "__builtin__", "copy_reg"})
"""The last two are what old pickle protocols call modules of the standard library."""
_PLAIN_MODULES = frozenset(
    f"benchmax.envs.{name}"
    for name in ("base", "base_env", "example_id", "logging", "reward_helpers", "reward_values", "types")
)
_PLAIN_WORDS = frozenset({"datasets"})
"""Names of modules that are names of attributes too: to find one in code says nothing."""


def check_servable(pickled: bytes, metadata: BundleMetadata) -> None:
    """Refuse, by name, a bundle that a run would stop at."""
    names = names_in(pickled)
    tree = _parsed(metadata.env_class_source)
    _refuse_rivals(names, metadata)
    missing = sorted(_missing(names) | {name for name in _imports(tree) if _is_ours(name) and not _is_here(name)})
    if missing:
        raise ValidationError(
            f"The environment uses {', '.join(missing[:5])}, which this benchmax does not have. Write it without "
            "that, or bring the code along in a module of your own (local_modules), and upload it again."
        )
    _refuse_other_style(tree)
    _refuse_undeclared(names, with_companions(pickled, metadata))


def with_companions(pickled: bytes, metadata: BundleMetadata) -> BundleMetadata:
    """The manifest with what a published client's bundle needs and does not declare, as it came along there."""
    if metadata.created_by is not None:
        return metadata
    names = names_in(pickled)
    later = (names.spoken - _PLAIN_WORDS) | _imports(_parsed(metadata.env_class_source))
    used = {name.partition(".")[0] for name in (*names.all_modules(), *later)}
    declared = {requirement_name(each) for each in metadata.pip_dependencies}
    lent = python_minor(metadata) == _HERE
    wanted = [
        package
        for module, package in CAME_ALONG.items()
        if module in used and package not in declared and not (lent and find_spec(module))
    ]
    return replace(metadata, pip_dependencies=[*metadata.pip_dependencies, *wanted])


def rows_read_by(pickled: bytes, metadata: BundleMetadata) -> str | None:
    """Who reads a bundle's rows: "" for the columns every environment knows, or the name of a built-in environment.

    None: code of its own, or of a package, reads them, and only a run can tell which it takes.
    """
    names = names_in(pickled)
    if names.hooks:
        return None
    built_in = [name for name, place in environments().items() if Global(*_split_name(place)) in names.globals]
    if built_in:
        return built_in[0]
    bases = _bases(_parsed(metadata.env_class_source))
    foreign = {name for name in names.all_modules() if not _is_plain(name)}
    return "" if bases == {"BaseEnv"} or not foreign else None


def _split_name(place: str) -> tuple[str, str]:
    module, _, name = place.rpartition(".")
    return module, name


def _bases(tree: ast.Module) -> set[str]:
    """What the classes of a source extend."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {ast.unparse(base).rpartition(".")[2] for node in classes for base in node.bases}


def _is_plain(module: str) -> bool:
    """Whether no class of the module reads rows in its own way."""
    root = module.partition(".")[0]
    ours = _is_ours(module) and not module.startswith("benchmax.envs.")
    return ours or module in _PLAIN_MODULES or root in ("cloudpickle", "__main__") or root in sys.stdlib_module_names


def _refuse_rivals(names: Names, metadata: BundleMetadata) -> None:
    declared = {requirement_name(each) for each in metadata.pip_dependencies}
    found = RIVALS & (declared | {name.partition(".")[0] for name in names.all_modules()})
    if found:
        raise DependencyError(
            f"The environment needs {', '.join(sorted(found))}, which brings a benchmax of its own and cannot be "
            "opened beside this one. Write the environment with benchmax alone, and upload it again."
        )


def _refuse_undeclared(names: Names, metadata: BundleMetadata) -> None:
    """Modules that are certainly missing: with a package declared, nobody knows which modules it brings."""
    if metadata.pip_dependencies or python_minor(metadata) != _HERE:
        return
    roots = {name.partition(".")[0] for name in names.all_modules()} - _ALWAYS_THERE
    missing = sorted(root for root in roots if root not in sys.stdlib_module_names and not _is_installed(root))
    if missing:
        raise DependencyError(
            f"The environment needs the module {', '.join(missing[:5])}, which is not installed here and in no "
            "declared package. Name its package in pip_dependencies, or the module in local_modules, and upload it "
            "again."
        )


def _is_installed(root: str) -> bool:
    try:
        return find_spec(root) is not None
    except (ImportError, ValueError):
        return False


def _refuse_other_style(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == "compute_reward":
            refuse_later_style([each.arg for each in (*node.args.args, *node.args.kwonlyargs)])


def refuse_later_style(parameters: list[str]) -> None:
    """ValidationError for a `compute_reward(self, rollout)`: what benchmax 0.2 calls it with does not exist here."""
    if [name for name in parameters if name != "self"] == ["rollout"]:
        raise ValidationError(
            "compute_reward(self, rollout) is written for benchmax 0.2. Write it as compute_reward(self, rollout_id, "
            "messages, task, **kwargs), and upload the environment again."
        )


def _missing(names: Names) -> set[str]:
    """Names of benchmax that it does not have."""
    gone = {str(each) for each in names.globals if _is_ours(each.module) and not _has(each.module, each.name)}
    later = {name for name in (*names.modules, *names.spoken) if _is_ours(name) and not _is_here(name)}
    return gone | later


def _is_ours(name: str) -> bool:
    return name == "benchmax" or name.startswith("benchmax.")


def _is_here(module: str) -> bool:
    return module in HOMES or _file(module) is not None


def _has(module: str, name: str) -> bool:
    """Whether one of our modules has a name at its top; of a dotted name the first part is looked at."""
    first = name.partition(".")[0]
    known = [_top_names(home) for home in HOMES.get(module, (module,))]
    return any(first in names or "__getattr__" in names for names in known)


def _file(module: str) -> Path | None:
    """The file of a module of ours."""
    parts = module.split(".")[1:]
    if not all(part.isidentifier() for part in parts):
        return None
    place = Path(benchmax.__file__).parent.joinpath(*parts)
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


@lru_cache(maxsize=1024)
def _top_names(module: str) -> frozenset[str]:
    file = _file(module)
    if file is None:
        return frozenset()
    found: set[str] = set()
    for node in _statements(ast.parse(file.read_text("utf-8")).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        else:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return frozenset(found)


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Those of a module's top, also within `if` and `try`."""
    found = []
    for node in body:
        inner = [*getattr(node, "body", []), *getattr(node, "orelse", [])] if isinstance(node, ast.If | ast.Try) else []
        found += [*_statements(inner), *([] if inner else [node])]
    return found


def _parsed(source: str | None) -> ast.Module:
    """The source a manifest shows; what cannot be read says nothing."""
    try:
        return ast.parse(textwrap.dedent(source or "")[:SOURCE_CHARS])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found
