"""All commands in one tree. Only what a command line names is imported: all of it takes longer than most commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from benchmax import plugins

COMMANDS = {
    "validate": "local.validate.validate",
    "eval": "local.evals.evaluate_command",
    "compare": "local.evals.compare",
    "replay": "local.evals.replay",
    "show": "local.show.show",
    "train": "local.train.train",
    "export": "local.train.export",
    "plot": "local.train.plot",
    "serve": "local.serve.serve",
    "up": "platform.up.up",
    "down": "platform.up.down",
    "status": "platform.up.status",
    "logs": "platform.up.logs",
    "reindex": "platform.up.reindex",
    "backup": "platform.up.backup",
    "login": "platform.account.login",
    "logout": "platform.account.logout",
    "whoami": "platform.account.whoami",
    "launch": "platform.launch.launch",
    "quickstart": "platform.quickstart.quickstart",
    "setup": "local.setup.setup",
    "guide": "local.setup.guide",
    "help": "local.setup.help_",
    "doctor": "local.doctor.doctor",
    "stop": "platform.runs.stop",
    "resume": "platform.runs.resume",
    "playground": "platform.playground.playground",
    "limits": "local.limits.limits",
}
"""The functions in this package behind each command."""
GROUPS = {
    "env": "local.env.app",
    "models": "local.models.app",
    "runs": "platform.runs.app",
    "keys": "platform.keys.app",
    "endpoints": "platform.endpoints_and_secrets.endpoints",
    "secrets": "platform.endpoints_and_secrets.secrets",
    "webhooks": "platform.webhooks.app",
    "profile": "platform.profile.app",
    "data": "local.data.app",
    "mcp": "local.mcp.app",
    "wikipedia": "local.wikipedia.app",
}
"""The groups of commands, likewise."""
plugins.reserve("commands", {*COMMANDS, *GROUPS})


def _version(asked: bool) -> None:
    if asked:
        import benchmax

        typer.echo(f"benchmax {benchmax.__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option("--profile", help="The profile to use for this command (BENCHMAX_PROFILE).")
    ] = None,
) -> None:
    """Define an RL environment once; validate it, evaluate models on it, train one."""
    if profile:
        os.environ["BENCHMAX_PROFILE"] = profile  # children are to use it, too


def app_for(words: Sequence[str]) -> typer.Typer:
    """The tree with the one command that is named; all of it where none is, and for `help`, which lists them."""
    app = typer.Typer(
        name="benchmax",
        help="Define an RL environment once; validate it, evaluate models on it, train one, watch it learn.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=True,
    )
    app.callback()(_main)
    added = plugins.entries("commands")
    known = {*COMMANDS, *GROUPS, *added}
    named = command_of(words)
    wanted = {named} if named in known - {"help"} else known
    for name in filter(wanted.__contains__, COMMANDS):
        settings = _load("local.train.CONTEXT") if name == "train" else None
        app.command(name, context_settings=settings)(_load(COMMANDS[name]))
    for name in filter(wanted.__contains__, GROUPS):
        app.add_typer(_load(GROUPS[name]), name=name)
    if added and wanted - {*COMMANDS, *GROUPS}:
        from benchmax.cli.plugin_commands import add_commands

        add_commands(app, [named] if len(wanted) == 1 else None)
    return app


def command_of(words: Sequence[str]) -> str:
    """The word where the command is named, after `--profile`; an empty text when there is none."""
    first, *rest = words or [""]
    if first == "--profile":
        return command_of(rest[1:])
    return command_of(rest) if first.startswith("--profile=") else first


def _load(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(f"benchmax.cli.{module}"), name)


def __getattr__(name: str) -> typer.Typer:
    """`app`, the whole tree, made when it is first used."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = app = app_for(())
    return app
