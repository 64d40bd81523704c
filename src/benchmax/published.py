"""Module paths of the published packages, as aliases of the modules that have their names here.

An environment that a published client pickled refers to classes and functions by these paths. This table is the only
place that knows them; a finder creates the modules when they are imported, so that no file is needed for each. What
only the published packages have is in no row: a bundle that needs it is refused when it is launched.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_MCP = "benchmax.envs.mcp"

HOMES: dict[str, tuple[str, ...]] = {
    "benchmax.envs.base": ("benchmax.envs.base_env", "benchmax.envs.types"),
    f"{_MCP}.parallel_mcp_env": (f"{_MCP}.env",),
    f"{_MCP}.server_pool": (f"{_MCP}.pool",),
    f"{_MCP}.luggage": (f"{_MCP}.packed_workdir",),
    f"{_MCP}.provisioners.base_provisioner": (f"{_MCP}.provisioners.base",),
    f"{_MCP}.provisioners.local_provisioner": (f"{_MCP}.provisioners.local",),
    f"{_MCP}.provisioners.manual_provisioner": (f"{_MCP}.provisioners.manual",),
    f"{_MCP}.provisioners.skypilot_provisioner": (f"{_MCP}.provisioners.skypilot",),
    "benchmax.envs.postgres_search": ("benchmax.envs.search",),
    "benchmax.envs.postgres_search.search_env": ("benchmax.envs.search.search_env",),
    "benchmax.envs.wikipedia.utils": ("benchmax.envs.wikipedia.articles.live",),
    "benchmax.platform.credentials": ("benchmax.platform.sdk.credentials", "benchmax.config"),
    "benchmax.platform.device_auth": ("benchmax.platform.sdk.credentials", "benchmax.platform.sdk.exceptions"),
    "benchmax.platform.login": ("benchmax.platform.sdk.credentials",),
    "benchmax.rubrics.adaptive": ("benchmax.rubrics.evaluate", "benchmax.rewards.adaptive"),
    "benchmax.rubrics.reward_fns": ("benchmax.rubrics.functions",),
    "benchmax.rubrics.rubric": ("benchmax.rewards.rubric", "benchmax.rubrics.evaluate"),
    "benchmax.utils": ("benchmax.published",),
    "benchmax.utils.checkpoint": ("benchmax.published",),
}
"""A published module, and the modules here that have its names; the first that has a name provides it."""


def ensure_safe_python_version() -> None:
    """Does nothing: bundles are opened by the Python they were made with."""


class CheckpointBase:
    """Work that goes on where it was: a JSON state in a file, which is replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        return self.path.exists()

    def load(self) -> Any:
        """What was saved last; None when nothing was."""
        try:
            return json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return None

    def save(self, state: Any) -> None:
        from benchmax.files.atomic import write_text  # not needed to import benchmax

        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(state))

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


class _Alias(ModuleType):
    """A module that gets each name from the module that has it now."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for home in HOMES[self.__name__]:
                found = getattr(import_module(home), name, None)
                if found is not None:
                    setattr(self, name, found)
                    return found
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        homes = [dir(import_module(home)) for home in HOMES[self.__name__]]
        return sorted({name for names in homes for name in names if not name.startswith("_")})


class AliasFinder:
    """Finds the modules of the table, after all finders of files."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name not in HOMES:
            return None
        return ModuleSpec(name, self, is_package=any(other.startswith(f"{name}.") for other in HOMES))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, f"{spec.name}, by its published path.")

    def exec_module(self, module: ModuleType) -> None:
        """Names are resolved when they are accessed."""


def install() -> None:
    """Make the published paths importable."""
    if not any(isinstance(each, AliasFinder) for each in sys.meta_path):
        sys.meta_path.append(AliasFinder())
