"""Finds an environment, its arguments and its rows by what a person types.

arithmetic                      an environment with a name (`benchmax.envs.catalogue`)
reasoning/leg_counting          one of a family of environments
my_package.my_module.MyEnv      a dotted path; my_package.my_module:MyEnv is the same
main.py, main.py:MyEnv          a file, and the class in it when there are several
verifiers:ID, openenv:URL       one of another library (`benchmax.adapters.imports`)
math,crm  math=2,main.py:MyEnv  several in one run, with weights (`benchmax.envs.composed`)
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import json
import os
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, UnionType, new_class
from typing import Any, TypeGuard, Union, get_args, get_origin

from benchmax import plugins
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.catalogue import BUILT_IN, LISTINGS, environments, listing, member_class
from benchmax.envs.composed.parts import is_composed, part_name, split_parts
from benchmax.envs.datasets.readers import FORMATS, readable_rows
from benchmax.errors import (
    BenchmaxError,
    ConfigError,
    DatasetError,
    EnvDefinitionError,
    NotFoundError,
    PluginError,
    UsageError,
    describe_cause,
    did_you_mean,
)


def load_env_class(spec: str, folder: str | Path | None = None) -> type[BaseEnv]:
    """The environment class that `spec` names; dotted paths are looked up in `folder`, by default the current one."""
    if spec in BUILT_IN:
        return load_env_class(BUILT_IN[spec])
    if is_composed(spec):
        return _composed(spec, folder)
    if (member := member_class(spec)) is not None:
        member_env: type[BaseEnv] = member
        return member_env
    if "/" not in spec and spec in plugins.entries("environments"):
        return _added("environments", spec, plugins.load("environments", spec))
    library, colon, address = spec.partition(":")
    if colon and library in plugins.entries("imports"):
        return _added("imports", library, plugins.call("imports", library, address))
    file, name = split_spec(spec)
    if os.path.isdir(file) and (not name or "/" in file or file in (".", "..")):
        file = _file_in(Path(file))
    if file.endswith(".py"):
        return _choose(_import_file(Path(file)), name, spec)
    if Path(file).suffix and Path(file).is_file():
        raise UsageError(f"{file} is no Python file. Name the environment's, such as main.py; rows belong to --data.")
    module, dot, name = (file, ":", name) if name else spec.rpartition(".")
    if not dot or not all(part.isidentifier() for part in module.split(".")):
        known = environments()
        if (alone := spec.rpartition("=")[0].strip()) in known:
            raise UsageError(f"{spec!r} weighs one environment against none. Leave the weight out: {alone}.")
        near = f"Did you mean '{spec}.py'?" if Path(f"{spec}.py").is_file() else did_you_mean(spec, known)
        hints = [near, f"There are: {', '.join(known)}."]
        raise NotFoundError(
            f"There is no environment named {spec!r}. {' '.join(filter(None, hints))} "
            "Or give a file (main.py) or a dotted path (package.module.Class)."
        )
    return _choose(_import_module(module, str(folder or Path.cwd())), name, spec)


def _composed(spec: str, folder: str | Path | None) -> type[BaseEnv]:
    from benchmax.envs.composed.composed_env import compose

    named: dict[str, type[BaseEnv] | str] = {}
    weights: dict[str, float] = {}
    for part, weight in split_parts(spec).items():
        name = part_name(part, named)
        named[name], weights[name] = load_env_class(part, folder), weight
    return compose(weights=weights, **named)


def is_env_class(found: Any) -> TypeGuard[type[BaseEnv]]:
    return inspect.isclass(found) and issubclass(found, BaseEnv)


def usable_environments() -> dict[str, str]:
    """The dotted path of every environment that has a name and can be loaded; a plug-in that cannot is named in a
    warning."""
    return {name: path for name, path in environments().items() if name in BUILT_IN or _loads(name)}


@cache
def _loads(name: str) -> bool:
    try:
        load_env_class(name)
    except PluginError as error:
        plugins.skip(error)
        return False
    return True


def _added(group: str, name: str, found: Any) -> type[BaseEnv]:
    """The environment class that a package adds."""
    if is_env_class(found):
        return found
    raise plugins.wrong(group, name, found, "a class that extends BaseEnv")


def _file_in(folder: Path) -> str:
    """The file of a folder that holds its environment."""
    for name in ("env.py", "main.py"):
        if (folder / name).is_file():
            return str(folder / name)
    if any((folder / f"mcp_config.{ending}").is_file() for ending in ("yaml", "yml")):
        raise NotFoundError(
            f"{folder} has MCP servers but no env.py with their environment. Write a subclass of ParallelMcpEnv there "
            f"(docs/mcp.md has one), or look at the servers alone: benchmax mcp inspect {folder}"
        )
    raise NotFoundError(f"{folder} has no env.py or main.py. Name the file of the environment.")


def split_spec(spec: str) -> tuple[str, str]:
    """The file or module, and the class after the colon, if there is one."""
    where, _, name = spec.partition(":")
    return where, name


def _import_module(name: str, folder: str) -> ModuleType:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotFoundError(f"There is no module {name!r}. Check the spelling and the current folder.") from None
        if error.name is None:
            raise _import_failed(name, error) from error
        raise EnvDefinitionError(f"{name} needs the package {error.name!r}: pip install it, then try again.") from None
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error) from error


def _import_file(path: Path) -> ModuleType:
    if not os.path.isfile(path):  # not path.is_file(), which raises for a name that is too long
        raise NotFoundError(_no_file(path))
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ImportError) and "relative import" in str(error):
            raise EnvDefinitionError(
                f"{path} uses relative imports, which need its package. Name it by its dotted path: "
                f"{_dotted(path)}.ClassName, from the folder above the package."
            ) from None
        raise _import_failed(str(path), error) from error
    return module


def _no_file(path: Path) -> str:
    where = "" if path.is_absolute() else f" in {Path.cwd()}"
    return f"There is no file {path}{where}. Check the path."


def _dotted(path: Path) -> str:
    """The module's name as seen from above its outermost package."""
    folder, parts = path.resolve().parent, [path.stem]
    while len(parts) == 1 or (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _import_failed(what: str, error: BaseException) -> EnvDefinitionError:
    line = ""
    for frame in inspect.trace():
        if not frame.filename.startswith("<") and "importlib" not in frame.filename and __file__ != frame.filename:
            line = f" (at {Path(frame.filename).name}:{frame.lineno})"
    if isinstance(error, SystemExit):
        return EnvDefinitionError(
            f'{what} ends the program when it is imported{line}. Put what it runs under `if __name__ == "__main__":`.'
        )
    return EnvDefinitionError(f"{what} cannot be imported: {type(error).__name__}: {error}{line}. Correct it first.")


def _choose(module: ModuleType, name: str, spec: str) -> type[BaseEnv]:
    found = {key: value for key, value in vars(module).items() if is_env_class(value) and value is not BaseEnv}
    if name:
        if is_env_class(value := getattr(module, name, None)):
            return value
        known = ", ".join(found) or "none"
        raise EnvDefinitionError(f"{spec} is not an environment class. {module.__name__} has: {known}.")
    own = {key: value for key, value in found.items() if value.__module__ == module.__name__}
    if len(own) > 1:
        raise EnvDefinitionError(f"{spec} defines several environments: {', '.join(own)}. Name one: {spec}:ClassName.")
    if not own:
        imported = f"Name one that it imports ({', '.join(found)}): {spec}:ClassName, or write" if found else "Write"
        raise EnvDefinitionError(
            f"{spec} defines no environment. {imported} a class in it that derives from benchmax.BaseEnv, "
            "with `async def compute_reward(self, rollout_id, messages, task, **kwargs)`."
        )
    return next(iter(own.values()))


# Constructing it


def make_env(env_class: type[BaseEnv], arguments: Mapping[str, Any]) -> BaseEnv:
    """An instance; an error of its constructor is raised as EnvDefinitionError."""
    check_arguments(env_class, arguments)
    try:
        return env_class(**arguments)
    except BenchmaxError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvDefinitionError(
            f"{env_class.__name__} cannot be constructed: {describe_cause(error)}. "
            "Correct its __init__, or what is passed with --env-arg."
        ) from error


def check_arguments(env_class: type[BaseEnv], arguments: Mapping[str, Any]) -> None:
    """Raise for a class that cannot be constructed with these arguments, before anything is done with it."""
    refuse_unwritten_hooks(env_class)
    refuse_unknown_arguments(env_class, arguments)
    needed = [name for name, each in constructor_parameters(env_class).items() if each.default is each.empty]
    if left := [name for name in needed if name not in arguments]:
        raise EnvDefinitionError(
            f"{env_class.__name__} needs the argument {left[0]!r}. Give it with --env-arg {left[0]}=VALUE."
        )
    _refuse_wrong_types(env_class, arguments)


def refuse_unwritten_hooks(env_class: type[BaseEnv]) -> None:
    """Raise for a class without a method it must have; one with nearly that name is probably meant to be it."""
    missing = sorted(env_class.__abstractmethods__)
    if not missing:
        return
    own = [name for name in dir(env_class) if callable(getattr(env_class, name, None)) and not hasattr(BaseEnv, name)]
    near = [(found[0], name) for name in missing if (found := difflib.get_close_matches(name, own, n=1))]
    advice = "; ".join(f"rename {found} to {name}" for found, name in near) or "write it, or name a class that does"
    raise EnvDefinitionError(
        f"{env_class.__name__} does not implement {', '.join(missing)}. {advice[0].upper()}{advice[1:]}."
    )


_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


def _refuse_wrong_types(env_class: type[BaseEnv], arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for a value that is none of the plain types which the constructor's annotation names."""
    for name, each in constructor_parameters(env_class).items():
        union = get_origin(each.annotation) in (Union, UnionType)
        kinds = list(get_args(each.annotation)) if union else [each.annotation]
        value = arguments.get(name, each.default)
        accepted = [*kinds, *([int] if float in kinds else [])]
        if value == each.default or not all(kind in [*_KINDS] for kind in kinds) or type(value) in accepted:
            continue
        wanted = " or ".join(_KINDS[kind] for kind in kinds if kind is not type(None))
        example = f", such as {json.dumps(each.default)}" if type(each.default) in kinds and each.default else ""
        raise UsageError(
            f"{env_class.__name__} takes {wanted} for {name!r}{example}, and {value!r} is none. "
            f"Correct --env-arg {name}=VALUE."
        )


def refuse_unknown_arguments(env_class: type[BaseEnv], arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for arguments the constructor does not take: BaseEnv would ignore a misspelt one."""
    known = constructor_parameters(env_class)
    if env_class.__init__ is not BaseEnv.__init__ and _takes_more(env_class) and not _passes_on(env_class):
        return
    for name in arguments:
        if name not in known:
            hint = did_you_mean(name, known) or f"It takes: {', '.join(known) or 'none'}."
            raise UsageError(f"{env_class.__name__} takes no argument {name!r}. {hint}")


def parse_env_args(pairs: Iterable[str] | None, env: str | None = None, data: str | None = None) -> dict[str, Any]:
    """KEY=VALUE pairs; a value that is JSON is read as such. PART.KEY=VALUE is for a part of a composed environment.

    A built-in environment whose tools depend on its level gets the level of the rows named by `data`, unless it is set.
    """
    level = f"level={data}"
    arguments: dict[str, Any] = {"level": data} if level in listing(env or "").more_tools else {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        part, _, key = name.rpartition(".")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--env-arg {pair!r} is not KEY=VALUE. Write it like --env-arg difficulty=2.")
        given = arguments.setdefault(part, {}) if part else arguments
        if not isinstance(given, dict):
            raise ConfigError(f"--env-arg {pair!r} is for the part {part!r}, and {part!r} is {given!r}. Leave one out.")
        given[key] = json_or_text(value)
    return arguments


def json_or_text(value: str) -> Any:
    """A typed value, read as JSON if it is JSON; otherwise the text itself."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def constructor_parameters(env_class: type[BaseEnv]) -> dict[str, inspect.Parameter]:
    """The parameters the constructor takes by name, those that it passes on included where that is known."""
    given = list(_signature(env_class).parameters.values())[1:]
    own = {each.name: each for each in given if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    base = env_class.__base__
    if base is None or not issubclass(base, BaseEnv) or not _takes_more(env_class) or not _passes_on(env_class):
        return own
    return {name: each.replace(default=None) for name, each in constructor_parameters(base).items()} | own


def _signature(env_class: type[BaseEnv]) -> inspect.Signature:
    """Of its constructor, with annotations as types where they can be looked up."""
    try:
        return inspect.signature(env_class.__init__, eval_str=True)
    except Exception:  # an annotation may name what is imported for type checkers alone
        return inspect.signature(env_class.__init__)


def _takes_more(env_class: type[BaseEnv]) -> bool:
    parameters = inspect.signature(env_class.__init__).parameters.values()
    return any(each.kind is each.VAR_KEYWORD for each in parameters)


def _passes_on(env_class: type[BaseEnv]) -> bool:
    """Whether what it takes beyond its own parameters goes to its base and nowhere else, as in benchmax's own."""
    return env_class.__module__.startswith("benchmax.envs.") and not env_class.composed_of


# Its rows


class _NoHub(BaseEnv):
    """Placed between an environment and BaseEnv.load_dataset, which would look up any name on the hub."""

    @classmethod
    def load_dataset(cls, dataset_name: str, **kwargs: Any) -> tuple[Any, str | None]:
        if dataset_name != getattr(cls, "_typed", None):
            return super().load_dataset(dataset_name, **kwargs)
        raise NotFoundError(_no_such_data(cls, dataset_name))


def find_rows(env_class: type[BaseEnv], data: str | None) -> Any:
    """The rows a person means by `data`: a file, `hf:owner/name`, or a name the environment loads itself."""
    if data is None or means_own_rows(env_class, data):
        return own_rows(env_class, data or None)
    if not data.startswith("hf:") and not os.path.exists(data):
        raise NotFoundError(_no_file(Path(data)))
    return data


def means_own_rows(env_class: type[BaseEnv], data: str | None) -> bool:
    """Whether `data` is for the environment's own load_dataset: nothing, a folder, a name, or names for its parts."""
    if data and env_class.composed_of and "=" in data and not os.path.exists(data):
        return True
    return not data or os.path.isdir(data) or not (data.startswith("hf:") or Path(data).suffix or os.path.isfile(data))


def own_rows(env_class: type[BaseEnv], name: str | None = None) -> Any:
    """The rows that the environment's own load_dataset returns, with or without a name. Never looks on the hub."""
    if not overrides(env_class, "load_dataset"):
        if name is not None:
            raise NotFoundError(_no_such_data(env_class, name))
        raise UsageError(f"{env_class.__name__} has no rows of its own. Give some with --data FILE.")
    guarded = new_class(env_class.__name__, (env_class, _NoHub))
    guarded.__module__, guarded._typed = env_class.__module__, name  # type: ignore[attr-defined]
    with _errors_of_loader(env_class):
        returned = guarded.load_dataset(*([] if name is None else [name]))  # type: ignore[attr-defined]
    if not isinstance(returned, tuple) or len(returned) != 2:
        found = f"{env_class.__name__}.load_dataset returned {reprlib.repr(returned)}"
        raise UsageError(f"{found}. Let it return two things: rows, None.")
    rows, _ = returned
    return _drawn(env_class, rows) if isinstance(rows, Iterator) else rows


def own_json_rows(env_class: type[BaseEnv], name: str | None = None) -> list[dict[str, Any]]:
    """The same, as JSON has them: another process or a file is to take them."""
    rows = [row.data for row in readable_rows(own_rows(env_class, name))]
    try:
        return list(json.loads(json.dumps(rows)))
    except (TypeError, ValueError, RecursionError) as error:
        raise DatasetError(
            f"The rows of {env_class.__name__}.load_dataset are no JSON: {describe_cause(error)}. "
            "Make them of texts, numbers, lists and dicts."
        ) from error


def _drawn(env_class: type[BaseEnv], rows: Iterator[Any]) -> Iterator[Any]:
    """The rows as they are made: there may be no end to them."""
    with _errors_of_loader(env_class):
        yield from rows


@contextmanager
def _errors_of_loader(env_class: type[BaseEnv]) -> Iterator[None]:
    try:
        yield
    except BenchmaxError:
        raise
    except Exception as error:
        raise UsageError(
            f"{env_class.__name__}.load_dataset failed: {describe_cause(error)}. "
            "Correct it, or give another dataset with --data."
        ) from error


def _no_such_data(env_class: type[BaseEnv], name: str) -> str:
    hub = name if "/" in name else "owner/name"
    path = f"{env_class.__module__}.{env_class.__qualname__}"
    listed = [each for built_in, found in BUILT_IN.items() if found == path for each in LISTINGS[built_in].datasets]
    makes = f" (it makes {', '.join(listed)})" if listed else ""
    return (
        f"{name!r} is no file, and {env_class.__name__} knows no dataset of that name{makes}. "
        f"Give the path of a file ({', '.join(FORMATS)}), or hf:{hub} for one on the hub."
    )
