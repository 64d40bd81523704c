"""Plug-ins: what installed packages add to benchmax, declared as entry points.

| group                   | an entry is                                    | and adds                           |
| ----------------------- | ---------------------------------------------- | ---------------------------------- |
| `benchmax.environments` | an environment class                           | a name for `train`, `eval`, …      |
| `benchmax.models`       | a function `(rest) -> ModelClient`             | `--model NAME:rest`                |
| `benchmax.checks`       | a module that registers checks                 | findings of the doctor             |
| `benchmax.commands`     | a function or a `typer.Typer`                  | `benchmax NAME`                    |
| `benchmax.trainers`     | a `Backend`, or a `TrainerAdapter`             | `train --backend NAME`, `doctor`   |
| `benchmax.corpora`      | a function `(address) -> corpus to search`     | a corpus as `NAME:address`         |
| `benchmax.imports`      | a function `(address) -> environment class`    | environments as `NAME:address`     |

A package declares them in its pyproject.toml:

    [project.entry-points."benchmax.environments"]
    anagrams = "my_package.anagrams:AnagramEnv"

A plug-in that cannot be loaded, or is not what its group asks for, is named in a warning and skipped; everything else
works. Of two packages with the same name one is used, and a name of benchmax's own is never replaced: both are warned
of. What a package prints while it is imported goes to standard error.
"""

from __future__ import annotations

import inspect
import logging
import re
import reprlib
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, distributions, entry_points
from importlib.util import find_spec
from types import FrameType
from typing import Any

from benchmax.errors import BenchmaxError, PluginError, describe_cause

logger = logging.getLogger(__name__)


def _is_function(found: Any) -> bool:
    return callable(found) and not inspect.iscoroutinefunction(found)


def _is_trainer(found: Any) -> bool:
    named = all(callable(getattr(found, name, None)) for name in ("train", "resume"))
    return not inspect.isclass(found) and (named or callable(getattr(found, "open_backend", None)))


GROUPS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "environments": (inspect.isclass, "a class that extends BaseEnv"),
    "models": (_is_function, "a plain function that takes what follows the colon and returns a ModelClient"),
    "checks": (lambda found: True, "a module that registers checks"),
    "commands": (callable, "a function or a typer.Typer"),
    "trainers": (_is_trainer, "an object with the methods train and resume, or a TrainerAdapter"),
    "corpora": (_is_function, "a plain function that takes an address and returns a corpus"),
    "imports": (_is_function, "a plain function that takes an address and returns an environment class"),
}
"""What an entry of each group has to be: as a test, and in words."""
_NAME = re.compile(r"\w[\w-]*")
"""A name that stays one where it is typed: beside weights (`a=2,b`), addresses (`a:x`), paths and dotted names."""
_GROUP_NAMES = frozenset(f"benchmax.{group}" for group in GROUPS)
_reserved: dict[str, frozenset[str]] = {}
_warned: set[str] = set()


def reserve(group: str, names: Collection[str]) -> None:
    """Keep names of benchmax's own: a package's entry under one of them is left out, with a warning."""
    _reserved[group] = frozenset(names)


def entries(group: str) -> dict[str, EntryPoint]:
    """The entries that installed packages declare in a group, by name. Nothing of theirs is imported."""
    assert group in GROUPS, group
    found: dict[str, EntryPoint] = {}
    for each in sorted(entry_points(group=f"benchmax.{group}"), key=lambda entry: _package(entry) != "benchmax"):
        if not _NAME.fullmatch(each.name):
            _warn(
                f"{_package(each)} adds {each.name!r} to {group}, which cannot be typed as a name. It is left out; "
                "a name has letters, digits, _ and - alone."
            )
        elif each.name in _reserved.get(group, ()):
            _warn(f"{_package(each)} adds {each.name!r} to {group}, which is one of benchmax's own. It is left out.")
        elif each.name not in found:
            found[each.name] = each
        elif _package(each) != _package(found[each.name]):
            _warn(
                f"Both {_package(found[each.name])} and {_package(each)} add {each.name!r} to {group}. "
                f"That of {_package(found[each.name])} is used; uninstall one of them."
            )
    return found


def load(group: str, name: str) -> Any:
    """The object an entry names. Raises PluginError, which names the package, when it cannot be used."""
    with _user_interrupts() as interrupted:
        try:
            with redirect_stdout(sys.stderr):
                found = entries(group)[name].load()
        except BaseException as error:
            if interrupted:
                raise
            raise broken(group, name, f"cannot be loaded: {describe_cause(error)}") from error
    fits, wanted = GROUPS[group]
    if not fits(found):
        raise wrong(group, name, found, wanted)
    return found


def load_all(group: str) -> Iterator[tuple[str, Any]]:
    """Every object of a group that can be used; the others are named in a warning."""
    for name in entries(group):
        try:
            yield name, load(group, name)
        except PluginError as error:
            skip(error)


def call(group: str, name: str, address: str) -> Any:
    """What the function that an entry names returns for an address; PluginError when it fails."""
    function = load(group, name)
    try:
        return function(address)
    except BenchmaxError:
        raise
    except (Exception, SystemExit) as error:
        raise broken(group, name, f"failed for {f'{name}:{address}'!r}: {describe_cause(error)}") from error


def source_paths() -> list[str]:
    """Files and folders with the code of plug-ins, wherever it was installed from: nothing of it is imported."""
    declared = (entry for distribution in distributions() for entry in distribution.entry_points)
    modules = dict.fromkeys(each.module.partition(".")[0] for each in declared if each.group in _GROUP_NAMES)
    found = (spec for module in modules if (spec := _spec(module)))
    return [path for spec in found for path in spec.submodule_search_locations or [spec.origin or ""] if path]


def _spec(module: str) -> ModuleSpec | None:
    try:
        return find_spec(module)
    except (ImportError, ValueError):
        return None


def wrong(group: str, name: str, found: Any, wanted: str) -> PluginError:
    """The error for an object of a plug-in that is not what it has to be."""
    kind = "an async function" if inspect.iscoroutinefunction(found) else reprlib.repr(found)
    if inspect.iscoroutine(found):
        found.close()
    return broken(group, name, f"is or returns {kind}, not {wanted}")


def broken(group: str, name: str, why: str) -> PluginError:
    """The error for a plug-in that cannot be used."""
    entry = entries(group)[name]
    whose = f"The plug-in {name!r} ({entry.value}) of {_package(entry)}"
    return PluginError(f"{whose} {why}. Correct or uninstall that package.")


def skip(error: PluginError) -> None:
    """Warn that a plug-in is left out."""
    _warn(f"{error} It is skipped.")


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an installed package"


def _warn(message: str) -> None:
    """Warn once in a process, however often a group is read."""
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)


@contextmanager
def _user_interrupts() -> Iterator[list[int]]:
    """A list that gets an entry when the user interrupts: a package may raise KeyboardInterrupt itself."""
    interrupts: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield interrupts
        return

    def note(number: int, frame: FrameType | None) -> Any:
        interrupts.append(number)
        return handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, handler)
