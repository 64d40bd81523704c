"""`benchmax env`: the environments that have a name, what each is, and one of them played."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from itertools import islice
from json import dumps, loads
from typing import Annotated, Any

import typer

from benchmax.cli.local.models import open_named
from benchmax.cli.local.show import transcript
from benchmax.cli.output import Json, new_table, print_json, print_table, safe, shorten, stderr, visible
from benchmax.cli.project import BaseUrl, EnvArgs, refuse_server_without_model
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.catalogue import BUILT_IN, FAMILIES, Listing, listing, members
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import (
    check_arguments,
    find_rows,
    load_env_class,
    make_env,
    parse_env_args,
    usable_environments,
)
from benchmax.envs.types import Example, ToolDefinition
from benchmax.errors import UsageError
from benchmax.models.base import ModelClient
from benchmax.models.registry import gold_model
from benchmax.rollouts.demonstrations import play_demonstration
from benchmax.rollouts.groups import run_batch
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout

ROW_CHARS = 400
"""Of the row that `env show` prints."""

app = typer.Typer(help="Environments that have a name.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="A name of `env list`, main.py[:Class], package.module.Class, or several: math,crm.")
]


@app.command("list")
def list_(json: Json = False) -> None:
    """List the environments that come with benchmax, and those that installed packages add."""
    found = usable_environments()
    if json:
        print_json([{"name": name, "class": path, **_listed(name)} for name, path in found.items()])
        return
    table = new_table("name", "rows", "tools", "class")
    for name, path in found.items():
        if name in BUILT_IN:
            known = listing(name)
            table.add_row(name, ", ".join(known.datasets), _tools(known), path)
        else:
            own_rows = "its own" if overrides(load_env_class(name), "load_dataset") else ""
            table.add_row(name, own_rows, f"benchmax env show {name}", f"{path}, a plug-in")
    for family, module in FAMILIES.items():
        table.add_row(f"{family}/TASK", f"{len(members(family))}: benchmax env show {family}", "", f"{module}.*")
    print_table(table)


def _tools(known: Listing) -> str:
    """The tools without arguments, and where there are most."""
    most = max(known.more_tools.items(), key=lambda pair: pair[1], default=None)
    return "; ".join(filter(None, [", ".join(known.tools), most and f"{most[1]} with {most[0]}"]))


def _listed(name: str) -> dict[str, Any]:
    known = listing(name)
    return {
        "built_in": name in BUILT_IN,
        "datasets": list(known.datasets),
        "tools": list(known.tools),
        "more_tools": dict(known.more_tools),
        "members": members(name),
    }


@app.command()
def show(name: Name, env_arg: EnvArgs = None, json: Json = False) -> None:
    """Show what an environment asks for, which tools it has, and where its rows come from."""
    env_class = load_env_class(name)
    known = listing(name)
    with redirect_stdout(sys.stderr):  # what an environment prints is for people, not data
        facts = {**asyncio.run(_facts(env_class, parse_env_args(env_arg))), "datasets": list(known.datasets)}
    if json:
        print_json({"name": name, **facts, "more_tools": dict(known.more_tools)})
        return
    for line in _lines(name, facts, known):
        typer.echo(visible(line))
    stderr.print(f"Train on it: benchmax train {safe(name)}")


def _lines(name: str, facts: dict[str, Any], known: Listing) -> Iterator[str]:
    yield f"{name}  {facts['class']}"
    yield facts["about"]
    yield f"tools: {'' if facts['tools'] else 'none'}".rstrip()
    for tool, parameters in facts["parameters"].items():
        yield f"  {tool}({', '.join(f'{name}: {kind}' if kind else name for name, kind in parameters.items())})"
    if known.more_tools:
        yield f"tools by --env-arg: {', '.join(f'{count} with {given}' for given, count in known.more_tools.items())}"
    for part, tools in facts.get("parts", {}).items():
        yield f"  {part}: {', '.join(tools) or 'none'}"
    if family := members(name):
        yield f"{len(family)} more by name: {', '.join(family)}"
    yield f"rows: {_rows(facts)}"
    if facts["row"] is not None:
        yield f"  {shorten(dumps(facts['row'], ensure_ascii=False), ROW_CHARS)}"


def _parameters(tool: ToolDefinition) -> dict[str, str]:
    """What each argument is called, and its JSON type where the schema has one; optional ones have a question mark."""
    schema = tool.input_schema or {}
    required = schema.get("required", ())
    return {
        name if name in required else f"{name}?": str(about.get("type", "")) if isinstance(about, dict) else ""
        for name, about in schema.get("properties", {}).items()
    }


def _rows(facts: dict[str, Any]) -> str:
    if not facts["brings_rows"]:
        return "give some with --data"
    first, *others = facts["datasets"] or ["its own"]
    return f"{first}; with --data: {', '.join(others)}" if others else first


async def _facts(env_class: type[BaseEnv], arguments: dict[str, Any]) -> dict[str, Any]:
    env = make_env(env_class, arguments)
    try:
        tools = await env.list_tools()
        parts = {part: [tool.name for tool in await env.list_part_tools(part)] for part in env.composed_of}
    finally:
        await env.shutdown()
    about = inspect.getdoc(env_class) or inspect.getdoc(inspect.getmodule(env_class)) or ""
    return {
        "class": f"{env_class.__module__}.{env_class.__qualname__}",
        "about": " ".join(about.split("\n\n")[0].split()),
        "tools": [tool.name for tool in tools],
        "parameters": {tool.name: _parameters(tool) for tool in tools},
        "brings_rows": (brings_rows := overrides(env_class, "load_dataset")),
        "row": _first_row(env_class) if brings_rows else None,
        **({"parts": parts} if parts else {}),
    }


def _first_row(env_class: type[BaseEnv]) -> dict[str, Any] | None:
    """The first of the environment's own rows as JSON; None where there is none, which `env run` explains."""
    try:
        first = next(iter(find_rows(env_class, None)))
        row: dict[str, Any] = loads(dumps(dict(first), default=str, allow_nan=False))
        return row
    except Exception:  # whatever code of the environment raises: what else is known of it is shown
        return None


@app.command()
def run(
    name: Name,
    data: Annotated[str | None, typer.Option(help="Rows: a file, or a name the environment loads.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="What answers; the environment's own solution if not given.")
    ] = None,
    base_url: BaseUrl = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows to play.")] = 1,
    env_arg: EnvArgs = None,
    json: Json = False,
) -> None:
    """Play a few rows and print what happened, turn by turn; exit code 1 when no rollout has a reward."""
    refuse_server_without_model(base_url, model)
    env_class, arguments = load_env_class(name), parse_env_args(env_arg, name, data)
    check_arguments(env_class, arguments)
    examples = list(islice(load_examples(find_rows(env_class, data), env_class), rows))
    if not examples:
        raise UsageError("There are no rows to play. Give some with --data FILE.")
    make = partial(make_env, env_class, arguments)
    work = _answered(make, open_named(model, env_class, examples, base_url), examples) if model else None
    played = asyncio.run(work or _demonstrated(make, env_class, examples))
    if json:
        print_json([rollout.to_dict() for rollout in played])
    else:
        for rollout in played:
            sys.stdout.write("\n".join(transcript(rollout)) + "\n\n")
    if all(rollout.reward is None for rollout in played):
        raise typer.Exit(1)


async def _answered(make: Callable[[], BaseEnv], model: ModelClient, examples: list[Example]) -> list[Rollout]:
    async with model, EnvHost(make) as host:
        return await run_batch(host, examples, model)


async def _demonstrated(
    make: Callable[[], BaseEnv], env_class: type[BaseEnv], examples: list[Example]
) -> list[Rollout]:
    """Each example solved by `demonstrate`; by its gold answer where there is no demonstration."""
    async with EnvHost(make) as host:
        shown = [await play_demonstration(host, example) for example in examples]
        silent = [example for example, played in zip(examples, shown, strict=True) if played is None]
        answered = iter(await run_batch(host, silent, gold_model(env_class, silent)) if silent else [])
    return [next(answered) if played is None else played[0] for played in shown]
