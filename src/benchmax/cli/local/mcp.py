"""`benchmax mcp inspect`, `run`, `bench` and `setup`: the servers of a workdir, tried by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, print_json, print_table, safe, shorten, stderr, visible
from benchmax.doctor.tool_arguments import arguments_for
from benchmax.envs.loading import json_or_text
from benchmax.envs.types import ToolDefinition, ToolResult
from benchmax.errors import UsageError

if TYPE_CHECKING:
    from benchmax.envs.mcp import ParallelMcpEnv
    from benchmax.envs.mcp.load_test import LoadReport

app = typer.Typer(no_args_is_help=True, help="Try the MCP servers of a workdir.")

Folder = Annotated[Path, typer.Argument(metavar="WORKDIR", help="Folder with mcp_config.yaml, reward_fn.py, setup.sh.")]
Given = Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]…", help="The tool's arguments.")]


@app.command()
def inspect(workdir: Folder, as_json: Json = False) -> None:
    """List the tools of the servers, and how the servers are run."""
    from benchmax.envs.mcp.workdir import reward_names

    async def look() -> tuple[list[ToolDefinition], dict[str, Any]]:
        async with _opened(workdir, 1) as env:
            return await env.list_tools(), (await env.state())[0]

    tools, state = asyncio.run(look())
    rewards, trouble = reward_names(workdir)
    if as_json:
        schemas = [
            {"name": each.name, "description": each.description, "parameters": each.input_schema} for each in tools
        ]
        facts = {name: state[name] for name in ("confined", "not_forked", "left_out", "not_preloaded", "unread")}
        print_json({"tools": schemas, **facts, "rewards": rewards})
        return
    table = Table("tool", "arguments", "does", box=None, header_style="bold")
    for tool in tools:
        table.add_row(safe(tool.name), safe(_parameters(tool)), safe(shorten(tool.description)))
    print_table(table)
    for name, reason in state["not_forked"].items():
        stderr.print(f"{safe(name)} is started afresh for every rollout: {safe(reason)}.")
    for name, packages in state["not_preloaded"].items():
        for package, reason in packages.items():
            stderr.print(
                f"{safe(name)} imports {safe(package)} anew in every rollout: when imported it {safe(reason)}."
            )
    for name, paths in state["unread"].items():
        stderr.print(f"{safe(name)} may not read {safe(', '.join(paths))}. Name it in `read` if it should.")
    for name, reason in state["left_out"].items():
        stderr.print(f"{safe(name)} is left out, as model APIs do not accept it: {safe(reason)}.")
    stderr.print(safe(trouble or f"The rewards of reward_fn.py: {', '.join(rewards)}."))
    if not state["confined"]:
        stderr.print("This kernel has no landlock: only file modes keep rollouts out of one another's directories.")


@app.command()
def run(
    workdir: Folder,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool to call.")],
    arguments: Given = None,
    as_json: Json = False,
) -> None:
    """Call one tool in a fresh rollout and print its result."""

    async def call() -> Any:
        async with _opened(workdir, 1) as env:
            await env.list_tools()
            await env.init_rollout("run")
            return await env.run_tool("run", tool, **_arguments(arguments or ()))

    given = asyncio.run(call())
    result = given if isinstance(given, ToolResult) else ToolResult(str(given))
    if as_json:
        print_json({"text": result.text, "is_error": result.is_error, "parts": list(result.parts)})
    else:
        if result.text or not result.parts:
            typer.echo(visible(result.text))
        for part in result.parts:
            stderr.print(f"and {safe(_described(part))}")
    if result.is_error:
        raise typer.Exit(FAILED)


@app.command()
def bench(
    workdir: Folder,
    tool: Annotated[
        str | None, typer.Argument(metavar="[TOOL]", help="The tool to call; the first by default.")
    ] = None,
    arguments: Given = None,
    servers: Annotated[int, typer.Option(min=1, help="Rollouts at once.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long.")] = 10.0,
    calls: Annotated[int, typer.Option(min=1, help="Calls in one rollout.")] = 10,
    as_json: Json = False,
) -> None:
    """Start a pool of servers and call a tool as often as it goes, every few calls in a fresh rollout."""
    from benchmax.envs.mcp.load_test import run_load_test

    async def measure() -> LoadReport:
        async with _opened(workdir, servers) as env:
            name, given = await _chosen(env, tool, arguments)
            with Live(console=stderr, refresh_per_second=4, transient=True) as live:

                def show(seen: LoadReport) -> None:
                    latest[:] = [seen]
                    live.update(_table(seen))

                return await run_load_test(env, name, given, seconds=seconds, calls=calls, on_progress=show)

    latest: list[LoadReport] = []
    try:
        seen = asyncio.run(measure())
    except KeyboardInterrupt:
        if not latest:
            raise
        seen = latest[-1]
        stderr.print("Stopped; this is what was seen until then.")
    if as_json:
        print_json(seen.to_dict())
    else:
        print_table(_table(seen))
    if seen.failures:
        raise typer.Exit(FAILED)


@app.command()
def setup(workdir: Folder) -> None:
    """Run setup.sh, again if it was run before, and keep what it makes for all commands."""
    from benchmax.envs.mcp.provisioners import LocalProvisioner
    from benchmax.envs.mcp.workdir import read_workdir

    async def begin() -> None:
        servers = LocalProvisioner(workdir, 1, setup_again=True, on_setup=_say)
        try:
            await servers.provision_servers(token_hex(16))
        finally:
            await servers.teardown()

    if read_workdir(workdir).setup_script is None:
        stderr.print("There is nothing to run: setup.sh is missing, or has no commands.")
        return
    asyncio.run(begin())


def _say(text: str) -> None:
    stderr.print(safe(text))


@asynccontextmanager
async def _opened(workdir: Path, servers: int) -> AsyncIterator[ParallelMcpEnv]:
    from benchmax.envs.mcp import ParallelMcpEnv
    from benchmax.envs.mcp.provisioners import LocalProvisioner

    env = ParallelMcpEnv.for_tools(LocalProvisioner(workdir, servers, on_setup=_say))
    try:
        yield env
    finally:
        await env.shutdown()


async def _chosen(env: ParallelMcpEnv, tool: str | None, given: Sequence[str] | None) -> tuple[str, dict[str, Any]]:
    """The tool to call, and arguments for it: as given, or made from its schema."""
    tools = {each.name: each for each in await env.list_tools()}
    if not tools:
        raise UsageError("The servers have no tools. Check them with benchmax mcp inspect.")
    name = tool or next(iter(tools))
    if name not in tools:
        raise UsageError(f"There is no tool {name!r}. The tools are: {', '.join(tools)}.")
    return name, _arguments(given) if given else arguments_for(tools[name])


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    """`name=value`, where a value that is JSON is taken as such."""
    arguments: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise UsageError(f"{each!r} is not NAME=VALUE. Write, for example, city=Rome or count=3.")
        arguments[name] = json_or_text(text)
    return arguments


def _described(part: Mapping[str, Any]) -> str:
    """A description of a part that a terminal cannot show."""
    url = str((part.get("image_url") or {}).get("url") or "")
    head, comma, data = url.partition(",")
    if not comma:
        return f"a part of type {part.get('type')}"
    return f"a picture, {head.removeprefix('data:').split(';')[0]}, about {len(data) * 3 // 4:,} bytes"


def _parameters(tool: ToolDefinition) -> str:
    schema = tool.input_schema or {}
    required = set(schema.get("required") or ())
    return ", ".join(name if name in required else f"[{name}]" for name in schema.get("properties") or {})


def _table(seen: LoadReport) -> Table:
    values = seen.to_dict()
    call, table = values["call"], Table(box=None, show_header=False)
    table.add_row("ready in", f"{seen.ready_seconds:.1f} s")
    table.add_row("rollouts", f"{seen.rollouts} in {seen.seconds:.1f} s")
    table.add_row("calls", f"{seen.calls.count}, {values['calls_per_second']:,.0f} a second", style="bold")
    if seen.calls.count:
        table.add_row("one call", f"{call['p50_ms']:.1f} ms median, {call['p99_ms']:.1f} ms p99")
    for each in seen.machines:
        leases = f"{each.get('leased', 0)} in use, {each.get('ready', 0)} ready, {each.get('starting', 0)} starting"
        start = each.get("start") or {}
        table.add_row(
            f"machine {safe(shorten(each['address'], 40))}", f"{leases}; a start {start.get('p50_ms', 0):.0f} ms"
        )
        table.add_row("  crashes, retries", f"{each.get('crashes', 0)}, {each.get('retries', 0)}")
    for reason, count in seen.failures.most_common(3):
        table.add_row("[red]failed[/]", f"{count} × {safe(shorten(reason, 120))}")
    return table
