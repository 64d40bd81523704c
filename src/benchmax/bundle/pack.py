"""Packs an environment class, its arguments and the user's own modules into a bundle."""

from __future__ import annotations

import inspect
import logging
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import benchmax
from benchmax.bundle.class_ids import stable_bytes
from benchmax.bundle.compatibility import check_reward_style
from benchmax.bundle.errors import BundlingError, ValidationError
from benchmax.bundle.local_modules import late_imports, packable, unregistered_local_refs
from benchmax.bundle.metadata import Bundle, BundleMetadata, bundle_digest, canonical_dependencies
from benchmax.envs.base_env import BaseEnv

logger = logging.getLogger(__name__)

ROUNDS = 10
"""A local module may refer to another, which is found only after the first is included."""
SOURCE_CHARS = 1_000_000

_registering = threading.Lock()  # cloudpickle's registry belongs to the whole process


def dump_bundle(
    env_class: type[BaseEnv],
    *,
    constructor_args: Mapping[str, Any] | None = None,
    pip_dependencies: Iterable[str] | None = None,
    local_modules: Iterable[ModuleType | str] | None = None,
    env_class_source: str | None = None,
    auto_local_modules: bool = True,
) -> Bundle:
    """Pack an environment. Modules that are not installed packages are included in the bundle."""
    validate_structure(env_class, pip_dependencies)
    arguments = dict(constructor_args or {})
    asked = [_module(each) for each in local_modules or ()]
    with _registering:
        pickled, packed = _dump((env_class, arguments), asked, auto_local_modules)
    if late := late_imports(env_class):
        raise BundlingError(
            f"Imported inside a function, and not an installed package: {', '.join(late)}. "
            "Import it at the top of the file, so that it can be packed."
        )
    metadata = BundleMetadata(
        pip_dependencies=canonical_dependencies(_dependencies(env_class, pip_dependencies)),
        benchmax_version=benchmax.__version__,
        env_class_source=_source_of(env_class) if env_class_source is None else env_class_source,
        env_class=env_class.__name__,
        local_modules=packed,
        sha256=bundle_digest(pickled),
        created_by=f"benchmax {benchmax.__version__}",
        network=env_class.NETWORK,
    )
    return Bundle(pickled, metadata)


def bundle_env(
    env_class: type[BaseEnv],
    pip_dependencies: Iterable[str] | None = None,
    local_modules: Iterable[ModuleType | str] | None = None,
    validate: bool = True,
    constructor_args: Mapping[str, Any] | None = None,
) -> Bundle:
    """`dump_bundle`, by its older name."""
    return dump_bundle(
        env_class, constructor_args=constructor_args, pip_dependencies=pip_dependencies, local_modules=local_modules
    )


def validate_structure(env_class: Any, pip_dependencies: Iterable[str] | None = None) -> None:
    """Raise ValidationError unless the class can be an environment; DependencyError for a wrong requirement."""
    if not inspect.isclass(env_class):
        raise ValidationError(
            f"{type(env_class).__name__} is not a class. Give the environment class, and its arguments apart."
        )
    if env_class is BaseEnv or not issubclass(env_class, BaseEnv):
        raise ValidationError(f"{env_class.__name__} is not an environment. Give a subclass of BaseEnv.")
    check_reward_style(list(inspect.signature(env_class.compute_reward).parameters))
    if missing := sorted(getattr(env_class, "__abstractmethods__", ())):
        raise ValidationError(f"{env_class.__name__} does not implement {', '.join(missing)}. Write it first.")
    canonical_dependencies(_dependencies(env_class, pip_dependencies))


def _dependencies(env_class: type[BaseEnv], given: Iterable[str] | None) -> Sequence[str]:
    if isinstance(given, str):
        return [given]
    return list(env_class.PIP_DEPENDENCIES if given is None else given)


def _module(given: ModuleType | str) -> ModuleType:
    name = given if isinstance(given, str) else given.__name__
    if name not in sys.modules:
        raise BundlingError(f"The module {name!r} is not loaded. Import it before you pack the environment.")
    return sys.modules[name]


def _dump(
    content: tuple[type[BaseEnv], dict[str, Any]], asked: list[ModuleType], auto: bool
) -> tuple[bytes, list[str]]:
    """The pickle, and the modules that are in it by value."""
    with _by_value() as register:
        for module in asked:
            register(module)
        packed = [module.__name__ for module in asked]
        for _ in range(ROUNDS):
            pickled = _pickle(content)
            refs = unregistered_local_refs(pickled)
            if not refs:
                return pickled, sorted(packed)
            if not auto or not all(map(packable, refs)):
                break
            for name in refs:
                register(sys.modules[name])
            packed += refs
            logger.info("Packed with %s: %s", content[0].__name__, ", ".join(refs))
    raise BundlingError(
        f"These modules are not installed packages and cannot be packed: {', '.join(refs)}. "
        "Name them in local_modules, or name the packages they come from in pip_dependencies and install them here."
    )


@contextmanager
def _by_value() -> Iterator[Any]:
    """Yields a function that makes cloudpickle include a module by value, until the block ends."""
    import cloudpickle  # type: ignore[import-untyped]

    before = set(cloudpickle.list_registry_pickle_by_value())
    registered: list[ModuleType] = []

    def register(module: ModuleType) -> None:
        if module.__name__ not in before and module not in registered:
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)

    try:
        yield register
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _pickle(content: tuple[type[BaseEnv], dict[str, Any]]) -> bytes:
    import cloudpickle

    try:
        return stable_bytes(cloudpickle.dumps(content))
    except Exception as error:
        raise BundlingError(_unpackable_part(content, error)) from error


def _unpackable_part(content: tuple[type[BaseEnv], dict[str, Any]], error: Exception) -> str:
    """A message that names the argument or attribute that cannot be packed."""
    env_class, arguments = content
    for name, value in arguments.items():
        if why := _unpicklable(value):
            return f"The argument {name!r} ({type(value).__name__}) cannot be packed: {why}. Pass plain data instead."
    for name, value in vars(env_class).items():
        if not name.startswith("__") and (why := _unpicklable(value)):
            return f"{env_class.__name__}.{name} cannot be packed: {why}. Make what it uses in __init__ instead."
    return f"{env_class.__name__} cannot be packed: {error}. Make locks, files and clients in __init__."


def _unpicklable(value: Any) -> str | None:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return str(error)
    return None


def _source_of(env_class: type[BaseEnv]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(env_class))[:SOURCE_CHARS]
    except (OSError, TypeError):
        return None
