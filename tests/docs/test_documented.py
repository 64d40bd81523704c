"""Every public name, error, limit, command, option, check, record field, setting and hook is in the documentation."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

import benchmax
from benchmax import errors, limits
from benchmax.cli.app import app
from benchmax.doctor import CHECKS
from benchmax.envs.base_env import BaseEnv
from benchmax.models.base import Sampling
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.settings import RolloutSettings

ROOT = Path(__file__).parents[2]
DOCS = {page.name: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
ALL_DOCS = "\n".join(DOCS.values())


@pytest.mark.parametrize("name", sorted(benchmax.__all__))
def test_name_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS["names.md"]


def test_names_page_lists_nothing_else() -> None:
    cells = [line.split("|")[1] for line in DOCS["names.md"].splitlines() if line.startswith("| `")]
    assert {name.strip(" `") for cell in cells for name in cell.split(",")} == set(benchmax.__all__)


def error_classes() -> list[str]:
    return [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]


@pytest.mark.parametrize("name", error_classes())
def test_error_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS["errors.md"]


@pytest.mark.parametrize("limit", limits.TABLE, ids=lambda limit: limit.name)
def test_limit_is_documented_with_its_value(limit: limits.Limit) -> None:
    assert f"| `{limit.name}` | {limit.value:,} | {limit.unit} | {limit.meaning} |" in DOCS["limits.md"]


def leaves(command: Any, path: str = "benchmax") -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by what one types."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        if not child.hidden:
            yield from leaves(child, f"{path} {name}")


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_command_is_documented(path: str) -> None:
    assert path in DOCS["commands.md"], f"{path} is missing in docs/commands.md"
    for parameter in COMMANDS[path].params:
        options = [option for option in parameter.opts if option.startswith("--") and option != "--help"]
        assert not options or any(option in ALL_DOCS for option in options), f"{path} {options} is not in docs/"


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_check_is_documented(check: str) -> None:
    assert f"| `{check}` | {CHECKS[check].title} |" in DOCS["testing.md"]


@pytest.mark.parametrize("name", [field.name for field in fields(Rollout)])
def test_record_field_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS["record.md"]


@pytest.mark.parametrize("reason", list(Termination))
def test_termination_is_documented(reason: Termination) -> None:
    assert f"| `{reason.value}` |" in DOCS["record.md"]


@pytest.mark.parametrize("setting", [field.name for kind in (RolloutSettings, Sampling) for field in fields(kind)])
def test_setting_is_documented(setting: str) -> None:
    assert f"`{setting}`" in ALL_DOCS or f"{setting}=" in ALL_DOCS


@pytest.mark.parametrize("hook", [name for name in vars(BaseEnv) if not name.startswith("_")])
def test_hook_is_documented(hook: str) -> None:
    assert f"`{hook}" in ALL_DOCS


def test_rooms_are_documented_in_their_order() -> None:
    """The table in CONTRIBUTING.md is the list of layers that import-linter holds."""
    contract, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [[name.strip().removeprefix("benchmax.") for name in layer.split("|")] for layer in contract["layers"]]
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Rooms")[2].partition("\n## ")[0]
    rooms = [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert rooms == [name for layer in layers for name in layer]
