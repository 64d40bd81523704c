"""`benchmax env`: the environments that have a name, what each is, and one of them played."""

from __future__ import annotations

import asyncio
import inspect
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmax.cli.local.models import open_named
from benchmax.cli.local.show import transcript
from benchmax.cli.output import Json, new_table, print_json, print_table, safe, stderr
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.catalogue import BUILT_IN, environments
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import find_rows, load_env_class, make_env
from benchmax.errors import UsageError

if TYPE_CHECKING:
    from benchmax.rollouts.record import Rollout

app = typer.Typer(help="Environments that have a name.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name of `env list`, main.py[:Class] or package.module.Class.")]


@app.command("list")
def list_(json: Json = False) -> None:
    """List the environments that come with benchmax, and those that installed packages add."""
    found = [{"name": name, "class": path, "built_in": name in BUILT_IN} for name, path in environments().items()]
    if json:
        print_json(found)
        return
    table = new_table("name", "class", "")
    for each in found:
        table.add_row(str(each["name"]), str(each["class"]), "" if each["built_in"] else "plug-in")
    print_table(table)


@app.command()
def show(name: Name, json: Json = False) -> None:
    """Show what an environment asks for, which tools it has, and where its rows come from."""
    env_class = load_env_class(name)
    facts = asyncio.run(_facts(env_class))
    if json:
        print_json({"name": name, **facts})
        return
    stderr.print(f"[bold]{safe(name)}[/]  {safe(facts['class'])}", soft_wrap=True)
    stderr.print(safe(facts["about"]), soft_wrap=True)
    stderr.print(f"tools: {safe(', '.join(facts['tools']) or 'none')}", soft_wrap=True)
    stderr.print(f"rows: {'its own' if facts['brings_rows'] else 'give some with --data'}")
    stderr.print(f"Train on it: benchmax train {safe(name)}", soft_wrap=True)


async def _facts(env_class: type[BaseEnv]) -> dict[str, Any]:
    env = make_env(env_class, {})
    try:
        tools = [tool.name for tool in await env.list_tools()]
    finally:
        await env.shutdown()
    about = inspect.getdoc(env_class) or inspect.getdoc(inspect.getmodule(env_class)) or ""
    return {
        "class": f"{env_class.__module__}.{env_class.__qualname__}",
        "about": " ".join(about.split("\n\n")[0].split()),
        "tools": tools,
        "brings_rows": overrides(env_class, "load_dataset"),
    }


@app.command()
def run(
    name: Name,
    data: Annotated[str | None, typer.Option(help="Rows: a file, or a name the environment loads.")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="What answers.")] = "scripted:gold",
    base_url: Annotated[str | None, typer.Option(help="The model's server.")] = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows to play.")] = 1,
    json: Json = False,
) -> None:
    """Play a few rows and print what happened, turn by turn."""
    env_class = load_env_class(name)
    played = asyncio.run(_played(env_class, data, model, base_url, rows))
    if json:
        print_json([rollout.to_dict() for rollout in played])
        return
    for rollout in played:
        sys.stdout.write("\n".join(transcript(rollout)) + "\n\n")


async def _played(
    env_class: type[BaseEnv], data: str | None, model: str, base_url: str | None, rows: int
) -> list[Rollout]:
    from benchmax.rollouts.groups import run_batch
    from benchmax.rollouts.host import EnvHost

    examples = list(islice(load_examples(find_rows(env_class, data), env_class), rows))
    if not examples:
        raise UsageError("There are no rows to play. Give some with --data FILE.")
    client = open_named(model, env_class, examples, base_url)
    async with client, EnvHost(lambda: make_env(env_class, {})) as host:
        return await run_batch(host, examples, client)
