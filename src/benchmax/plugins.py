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

A plug-in that cannot be loaded is named in a warning and skipped; everything else works.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from benchmax.errors import PluginError

logger = logging.getLogger(__name__)

GROUPS = ("environments", "models", "checks", "commands", "trainers", "corpora", "imports")


def entries(group: str) -> dict[str, EntryPoint]:
    """The entries that installed packages declare in a group, by name. Nothing of theirs is imported."""
    assert group in GROUPS, group
    return {each.name: each for each in entry_points(group=f"benchmax.{group}")}


def load(group: str, name: str) -> Any:
    """The object an entry names. Raises PluginError, which names the package, when it cannot be imported."""
    entry = entries(group)[name]
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        package = entry.dist.name if entry.dist else "an installed package"
        raise PluginError(
            f"The plug-in {name!r} ({entry.value}) of {package} cannot be loaded: {type(error).__name__}: {error}. "
            "Fix or uninstall that package."
        ) from error


def load_all(group: str) -> Iterator[tuple[str, Any]]:
    """Every object of a group that can be loaded; the others are named in a warning."""
    for name in entries(group):
        try:
            yield name, load(group, name)
        except PluginError as error:
            logger.warning("%s It is skipped.", error)
