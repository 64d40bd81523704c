"""A Python that has benchmax and the packages of its core, as `pip install .` leaves one; nothing is downloaded."""

from __future__ import annotations

import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def distributions(requirements: Iterable[str]) -> dict[str, Distribution]:
    """What these requirements bring, those they need included, as it is installed beside the tests."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        wanted = waiting.pop()
        if wanted.name in found:
            continue
        found[wanted.name] = distribution(wanted.name)
        for each in map(Requirement, found[wanted.name].requires or ()):
            if each.marker is None or any(each.marker.evaluate({"extra": name}) for name in ("", *wanted.extras)):
                waiting.append(each)
    return found


def modules(distributions: Iterable[Distribution]) -> set[str]:
    """Names that can be imported from them."""
    tops = {file.parts[0] for each in distributions for file in each.files or ()}
    return {top.removesuffix(".py") for top in tops if top.removesuffix(".py").isidentifier()}


def core_python(folder: Path) -> Path:
    """Make a virtual environment of links to the core's packages; gives its interpreter."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for each in distributions(PROJECT["dependencies"]).values():
        for top in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(each.locate_file(top))
    (site / "benchmax.pth").write_text(str(ROOT / "src"))
    return folder / "bin" / "python"
