"""Whether this benchmax can run a bundle, judged by the names it refers to. Nothing of it is imported, called or run.

The opcodes of its pickle name what is imported when it is opened, the code in it names what is imported later, and so
does the source in its manifest. A name of benchmax is looked up in benchmax's own files, which are read, not imported.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import benchmax
from benchmax.bundle.errors import DependencyError, ValidationError
from benchmax.bundle.interpreters import HERE
from benchmax.bundle.local_modules import find_spec
from benchmax.bundle.metadata import BundleMetadata, python_minor, requirement_name
from benchmax.bundle.pickle_names import Global, Names, names_in
from benchmax.envs.catalogue import environments
from benchmax.published import HOMES, advice_on

IMPLIED_PACKAGES = {"openai": "openai", "httpx": "httpx", "datasets": "datasets", "json_repair": "json-repair"}
"""Modules that the published package brought with it, so that its bundles do not declare them; and their packages."""
CONFLICTING = frozenset({"castform", "cgft"})
"""Packages that contain a benchmax of their own, which cannot be used beside this one."""
SOURCE_CHARS = 200_000
"""Read of a source; its syntax tree takes some five hundred times as many bytes."""
_ALWAYS_INSTALLED = frozenset({"benchmax", "__main__", "__builtin__", "copy_reg"})
"""The last two are the names of standard modules in old pickle protocols."""
_PLAIN_MODULES = frozenset(
    f"benchmax.envs.{name}"
    for name in ("base", "base_env", "example_id", "logging", "normalise_rewards", "reward_helpers", "types")
)
_AMBIGUOUS = frozenset({"datasets"})
"""Names of modules that are common names of attributes too: finding one in code means nothing."""


def check_compatible(pickled: bytes, metadata: BundleMetadata) -> None:
    """Raise an error that names what a run of this bundle would fail at."""
    names = names_in(pickled)
    tree = _parsed(metadata.env_class_source)
    _refuse_conflicts(names, metadata)
    missing = sorted(_missing(names) | {name for name in _imports(tree) if _is_benchmax(name) and not _exists(name)})
    if missing:
        own = "Write it without that, or put the code into a module of your own (local_modules)."
        advice = next(filter(None, map(advice_on, missing)), own)
        raise ValidationError(
            f"The environment uses {', '.join(missing[:5])}, which this benchmax does not have. {advice} "
            "Then upload it again."
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == "compute_reward":
            check_reward_style([each.arg for each in (*node.args.args, *node.args.kwonlyargs)])
    _refuse_undeclared(names, with_implied_packages(pickled, metadata))


def with_implied_packages(pickled: bytes, metadata: BundleMetadata) -> BundleMetadata:
    """The manifest with the packages that a published client's bundle needs and does not declare."""
    if metadata.created_by is not None:
        return metadata
    names = names_in(pickled)
    later = (names.in_code - _AMBIGUOUS) | _imports(_parsed(metadata.env_class_source))
    used = {name.partition(".")[0] for name in (*names.all_modules(), *later)}
    declared = {requirement_name(each) for each in metadata.pip_dependencies}
    shared = python_minor(metadata) == HERE
    wanted = [
        package
        for module, package in IMPLIED_PACKAGES.items()
        if module in used and package not in declared and not (shared and find_spec(module))
    ]
    return replace(metadata, pip_dependencies=[*metadata.pip_dependencies, *wanted])


def known_row_reader(pickled: bytes, metadata: BundleMetadata) -> str | None:
    """What reads a bundle's rows: "" for the columns every environment knows, or the name of a built-in environment.

    None: its own code, or a package, reads them, and only a run shows which rows it accepts.
    """
    names = names_in(pickled)
    if names.hooks or any(module.startswith("benchmax.envs.composed") for module in names.all_modules()):
        return None
    built_in = [name for name, place in environments().items() if Global(*place.rpartition(".")[::2]) in names.globals]
    if built_in:
        return built_in[0]
    bases = _bases(_parsed(metadata.env_class_source))
    foreign = {name for name in names.all_modules() if not _is_plain(name)}
    return "" if bases == {"BaseEnv"} or not foreign else None


def _bases(tree: ast.Module) -> set[str]:
    """What the classes of a source extend."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {ast.unparse(base).rpartition(".")[2] for node in classes for base in node.bases}


def _is_plain(module: str) -> bool:
    """Whether no class of the module reads rows in a way of its own."""
    root = module.partition(".")[0]
    ours = _is_benchmax(module) and not module.startswith("benchmax.envs.")
    return ours or module in _PLAIN_MODULES or root in ("cloudpickle", "__main__") or root in sys.stdlib_module_names


def _refuse_conflicts(names: Names, metadata: BundleMetadata) -> None:
    declared = {requirement_name(each) for each in metadata.pip_dependencies}
    found = CONFLICTING & (declared | {name.partition(".")[0] for name in names.all_modules()})
    if found:
        raise DependencyError(
            f"The environment needs {', '.join(sorted(found))}, which brings a benchmax of its own and cannot be "
            "used beside this one. Write the environment with benchmax alone, and upload it again."
        )


def _refuse_undeclared(names: Names, metadata: BundleMetadata) -> None:
    """Raise for modules that are certainly missing: a declared package may bring any module."""
    if metadata.pip_dependencies or python_minor(metadata) != HERE:
        return
    roots = {name.partition(".")[0] for name in names.all_modules()} - _ALWAYS_INSTALLED
    missing = sorted(root for root in roots if root not in sys.stdlib_module_names and find_spec(root) is None)
    if missing:
        raise DependencyError(
            f"The environment needs the module {', '.join(missing[:5])}, which is not installed here and in no "
            "declared package. Name its package in pip_dependencies, or the module in local_modules, and upload it "
            "again."
        )


def check_reward_style(parameters: list[str]) -> None:
    """Raise ValidationError for a `compute_reward(self, rollout)`, which is written for benchmax 0.2."""
    if [name for name in parameters if name != "self"] == ["rollout"]:
        raise ValidationError(
            "compute_reward(self, rollout) is written for benchmax 0.2. Write it as compute_reward(self, rollout_id, "
            "messages, task, **kwargs), and upload the environment again."
        )


def _missing(names: Names) -> set[str]:
    """Names of benchmax that do not exist here."""
    gone = {str(each) for each in names.globals if _is_benchmax(each.module) and not _has(each.module, each.name)}
    later = {name for name in (*names.modules, *names.in_code) if _is_benchmax(name) and not _exists(name)}
    return gone | later


def _is_benchmax(name: str) -> bool:
    return name == "benchmax" or name.startswith("benchmax.")


def _exists(module: str) -> bool:
    return module in HOMES or _file(module) is not None


def _has(module: str, name: str) -> bool:
    """Whether a module of benchmax defines a name; of a dotted name, its first part counts."""
    first = name.partition(".")[0]
    known = [_top_names(home) for home in HOMES.get(module, (module,))]
    return any(first in names or "__getattr__" in names for names in known)


def _file(module: str) -> Path | None:
    """The file of a module of benchmax."""
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
    """The statements at a module's top level, also those inside `if` and `try`."""
    found = []
    for node in body:
        inner = [*getattr(node, "body", []), *getattr(node, "orelse", [])] if isinstance(node, ast.If | ast.Try) else []
        found += [*_statements(inner), *([] if inner else [node])]
    return found


def _parsed(source: str | None) -> ast.Module:
    """The source in a manifest, parsed; empty when it cannot be."""
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
