"""Finding an environment class by what a person types.

arithmetic                      an environment that comes with benchmax
my_package.my_module.MyEnv      a dotted path
main.py, main.py:MyEnv          a file, and the class in it when there are several
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from benchmax.envs.base_env import BaseEnv
from benchmax.errors import EnvDefinitionError, NotFoundError

BUILT_IN = {
    "arithmetic": "benchmax.envs.arithmetic.arithmetic_env.ArithmeticEnv",
    "calculator": "benchmax.envs.calculator.calculator_env.CalculatorEnv",
}


def load_env_class(spec: str) -> type[BaseEnv]:
    """The environment class that `spec` names."""
    if spec in BUILT_IN:
        return load_env_class(BUILT_IN[spec])
    file, _, name = spec.partition(":")
    if file.endswith(".py"):
        return _choose(_import_file(Path(file)), name, spec)
    module, dot, name = spec.rpartition(".")
    if not dot:
        near = difflib.get_close_matches(spec, BUILT_IN, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise NotFoundError(
            f"There is no environment named {spec!r}. {hint}Built in: {', '.join(BUILT_IN)}. "
            "Or give a file (main.py) or a dotted path (package.module.Class)."
        )
    return _choose(_import_module(module), name, spec)


def _import_module(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotFoundError(f"There is no module {name!r}. Check the spelling and the current folder.") from None
        raise EnvDefinitionError(f"{name} needs the package {error.name!r}: pip install it, then try again.") from None
    except Exception as error:
        raise _import_failed(name, error) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}. Check the path.")
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _import_failed(str(path), error) from error
    return module


def _import_failed(what: str, error: Exception) -> EnvDefinitionError:
    line = ""
    for frame in inspect.trace():
        if not frame.filename.startswith("<") and "importlib" not in frame.filename and __file__ != frame.filename:
            line = f" (at {Path(frame.filename).name}:{frame.lineno})"
    return EnvDefinitionError(f"{what} cannot be imported: {type(error).__name__}: {error}{line}. Correct it first.")


def _choose(module: ModuleType, name: str, spec: str) -> type[BaseEnv]:
    found = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, BaseEnv) and value is not BaseEnv
    }
    if name:
        value = getattr(module, name, None)
        if not (inspect.isclass(value) and issubclass(value, BaseEnv)):
            raise EnvDefinitionError(
                f"{spec} is not an environment class. {module.__name__} has: {', '.join(found) or 'none'}."
            )
        return value
    own = {key: value for key, value in found.items() if value.__module__ == module.__name__}
    if len(own) != 1:
        names = ", ".join(own) or "none"
        raise EnvDefinitionError(
            f"{spec} must define exactly one BaseEnv subclass, and defines: {names}. Name it as {spec}:ClassName."
        )
    return next(iter(own.values()))
