"""Commands that installed packages add (`benchmax.plugins`): one that is broken is skipped, and named."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import typer
from typer.main import get_command

from benchmax import plugins
from benchmax.errors import PluginError, describe_cause


def add_commands(app: typer.Typer, names: Sequence[str] | None = None) -> None:
    """Add the commands of these names, or all that can be used; PluginError for one that is named and cannot."""
    found = [(name, plugins.load("commands", name)) for name in names] if names else plugins.load_all("commands")
    for name, added in found:
        try:
            _add(typer.Typer(), name, added, check=True)
        except Exception as error:
            wrong = plugins.broken("commands", name, f"cannot be a command: {describe_cause(error)}")
            if names:
                raise wrong from error
            plugins.skip(wrong)
        else:
            _add(app, name, added)


def _add(app: typer.Typer, name: str, added: Any, check: bool = False) -> None:
    if isinstance(added, typer.Typer):
        app.add_typer(added, name=name)
    else:
        app.command(name)(_run_to_end(added) if inspect.iscoroutinefunction(added) else added)
    if check:
        get_command(app)


def _run_to_end(command: Callable[..., Any]) -> Callable[..., Any]:
    """An async command as one that typer can call."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(command(*args, **kwargs))

    return run


def failure(error: Exception, name: str) -> PluginError | None:
    """What the command of a package raised, as an error in words; None when `name` is a command of benchmax's own."""
    if name not in plugins.entries("commands"):
        return None
    return plugins.broken("commands", name, f"failed: {describe_cause(error)}")
