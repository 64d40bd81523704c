"""All commands in one tree."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.models import CommandInfo

from benchmax import plugins
from benchmax.cli.local import data, env, evals, limits, mcp, models, setup, show, train, wikipedia
from benchmax.cli.local.doctor import doctor
from benchmax.cli.local.serve import serve
from benchmax.cli.local.validate import validate
from benchmax.cli.platform import account, keys, launch, profile, runs, vault, webhooks
from benchmax.cli.platform import up as platform
from benchmax.cli.platform.playground import playground
from benchmax.cli.platform.quickstart import quickstart

logger = logging.getLogger(__name__)

app = typer.Typer(
    name="benchmax",
    help="Define an RL environment once; validate it, evaluate models on it, train one, watch it learn.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=True,
)


def _version(asked: bool) -> None:
    if asked:
        import benchmax

        typer.echo(f"benchmax {benchmax.__version__}")
        raise typer.Exit


@app.callback()
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


app.command()(validate)
app.command("eval")(evals.evaluate_command)
app.command()(evals.compare)
app.command()(evals.replay)
app.command()(show.show)
app.command(context_settings=train.CONTEXT)(train.train)
app.command()(train.export)
app.command()(train.plot)
app.add_typer(env.app, name="env")
app.add_typer(models.app, name="models")
app.command()(serve)
app.command()(platform.up)
app.command()(platform.down)
app.command()(platform.status)
app.command()(platform.logs)
app.command()(platform.reindex)
app.command()(platform.backup)
app.command()(account.login)
app.command()(account.logout)
app.command()(account.whoami)
app.command()(launch.launch)
app.command()(quickstart)
app.command()(setup.setup)
app.command()(setup.guide)
app.command("help")(setup.help_)
app.command()(doctor)
app.command()(runs.stop)
app.command()(runs.resume)
app.command()(playground)
app.add_typer(runs.app, name="runs")
app.add_typer(keys.app, name="keys")
app.add_typer(vault.endpoints, name="endpoints")
app.add_typer(vault.secrets, name="secrets")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(profile.app, name="profile")
app.add_typer(data.app, name="data")
app.add_typer(mcp.app, name="mcp")
app.add_typer(wikipedia.app, name="wikipedia")
app.command()(limits.limits)


def app_for(words: Sequence[str]) -> typer.Typer:
    """The tree with nothing but what the first word names: putting all commands together takes longer than most run.

    The whole tree where the first word names none, and for `help`, which lists them.
    """
    named = words[0] if words and words[0] != "help" else ""
    commands = [each for each in app.registered_commands if _name(each) == named]
    groups = [each for each in app.registered_groups if each.name == named]
    if not commands and not groups:
        return app
    narrow = copy.copy(app)
    narrow.registered_commands, narrow.registered_groups = commands, groups
    return narrow


def _name(command: CommandInfo) -> str:
    return command.name or (command.callback.__name__ if command.callback else "")


def _add_plugins() -> None:
    """Commands of installed packages; a built-in name is not replaced."""
    taken = {_name(each) for each in app.registered_commands}
    taken |= {each.name or "" for each in app.registered_groups}
    for name, added in plugins.load_all("commands"):
        if name in taken:
            logger.warning("A plug-in has a command %r, which is one of benchmax's own. It is left out.", name)
        elif isinstance(added, typer.Typer):
            app.add_typer(added, name=name)
        else:
            app.command(name)(added)


_add_plugins()
