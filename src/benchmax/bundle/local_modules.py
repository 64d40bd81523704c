"""Which modules are the user's own files, and so must be included in the bundle."""

from __future__ import annotations

import dis
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from benchmax.bundle.pickle_names import names_in
from benchmax.package_folders import package_folders

NEVER_LOCAL = {"benchmax", "cloudpickle", "__main__"}
"""benchmax is installed wherever a bundle is opened, and cloudpickle includes `__main__` by itself."""


def unregistered_local_refs(pickled: bytes) -> list[str]:
    """Modules the pickle refers to by name that belong neither to installed packages nor to the standard library."""
    return sorted(name for name in names_in(pickled).all_modules() if is_local(name))


def is_local(module: str) -> bool:
    """Whether a module is one of the user's files, or cannot be found at all."""
    root = module.partition(".")[0]
    if root in NEVER_LOCAL or root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return False
    spec = find_spec(module)
    if spec is None:
        return True
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return not any(Path(place).resolve().is_relative_to(home) for place in places for home in _package_homes())


def find_spec(module: str) -> ModuleSpec | None:
    """The spec of a module, or of its package. Nothing is imported to find it."""
    loaded = sys.modules.get(module)
    if loaded is not None and loaded.__spec__ is not None:
        return loaded.__spec__
    try:
        return importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError, AttributeError):
        return None


def packable(module: str) -> bool:
    """Whether a local module can be included: it is loaded, and it is Python."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) or ""
    return isinstance(loaded, ModuleType) and not file.endswith(tuple(EXTENSION_SUFFIXES))


@lru_cache(maxsize=1)
def _package_homes() -> list[Path]:
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return [Path(path).resolve() for path in (*package_folders(), *standard)]


def late_imports(env_class: type) -> list[str]:
    """Local modules that the class, or what it uses, imports inside functions.

    They are not included, and would not be found where the bundle is opened.
    """
    found: set[str] = set()
    seen: dict[int, Any] = {}
    left: list[Any] = [env_class]
    while left:
        thing = _unwrapped(left.pop())
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, FunctionType):
            codes = list(_codes(thing.__code__))
            steps = (step for code in codes for step in dis.get_instructions(code))
            found.update(step.argval for step in steps if step.opname == "IMPORT_NAME" and step.argval)
            left += _used_by(thing, {name for code in codes for name in code.co_names})
        elif isinstance(thing, type) and _is_included(thing):
            left += [*vars(thing).values(), *thing.__bases__]
    # One that is not found here may be a package that is installed only where the bundle is opened.
    return sorted(name for name in found if find_spec(name) is not None and is_local(name))


def _unwrapped(thing: Any) -> Any:
    if isinstance(thing, classmethod | staticmethod):
        return thing.__func__
    return thing.fget if isinstance(thing, property) else thing


def _is_included(thing: type | FunctionType) -> bool:
    return "<locals>" in thing.__qualname__ or thing.__module__ == "__main__" or is_local(str(thing.__module__))


def _used_by(function: FunctionType, names: set[str]) -> Iterator[Any]:
    """The globals and closure of a function, and the attributes it names of local modules."""
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for value in values + _enclosed(function):
        if isinstance(value, ModuleType):
            if is_local(value.__name__):
                yield from (vars(value)[name] for name in names if name in vars(value))
        elif not isinstance(value, FunctionType) or _is_included(value):
            yield value if isinstance(value, type | FunctionType) else type(value)


def _enclosed(function: FunctionType) -> list[Any]:
    values = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a name that was never set
            continue
    return values


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
