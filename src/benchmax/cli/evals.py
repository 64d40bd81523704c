"""`benchmax eval`, `compare` and `replay`."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from benchmax.cli.output import FAILED, INTERRUPTED, print_json, safe, shorten, words
from benchmax.cli.progress import progress
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.loading import load_env_class
from benchmax.envs.types import Example
from benchmax.errors import ConfigError, NotFoundError, UsageError
from benchmax.evaluation.compare import Comparison
from benchmax.evaluation.compare import compare as compare_rollouts
from benchmax.evaluation.evaluate import Evaluation, evaluate, read_config, save_config
from benchmax.evaluation.opening import open_model
from benchmax.evaluation.report import Report
from benchmax.evaluation.statistics import Estimate
from benchmax.models.base import Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.log import latest_rollouts
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.replay import replay as replay_rollouts
from benchmax.rollouts.settings import RolloutSettings

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
T = TypeVar("T")


def evaluate_command(
    context: typer.Context,
    env: Annotated[str | None, typer.Argument(help="arithmetic, main.py[:Class] or package.module.Class.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Rows: a JSONL, JSON, CSV or parquet file, or a name the environment loads.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="A model's name on the server, or scripted:gold, scripted:TEXT.")
    ] = "scripted:gold",
    base_url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server, for example http://localhost:8000/v1.")
    ] = None,
    api_key_var: Annotated[
        str | None, typer.Option(help="The environment variable that holds the server's key.")
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", "-n", help="How many examples; all when not given.")] = None,
    group_size: Annotated[int, typer.Option("--group-size", "-r", min=1, help="Samples of each example.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="Rollouts in flight at once.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0)] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens in one turn.")] = 1024,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Model turns in one rollout.")] = None,
    env_arg: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the environment's constructor; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; one under runs/ when not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on in this run's folder; takes no other arguments.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a model on an environment: reward, pass@k, solve rate, every component, with intervals."""
    if resume:
        _nothing_but_resume(context)
        config, directory = read_config(resume), resume
    else:
        if env is None:
            raise UsageError(
                "Name an environment: benchmax eval arithmetic, or benchmax eval main.py --data rows.jsonl."
            )
        sampling = {"temperature": temperature, "max_tokens": max_tokens}
        config = {
            "env": env, "env_args": parse_env_args(env_arg), "data": data, "model": model, "base_url": base_url,
            "api_key_var": api_key_var, "rows": rows, "group_size": group_size, "concurrency": concurrency,
            "max_turns": max_turns, "sampling": sampling,
        }  # fmt: skip
        directory = out or _new_directory(env)
        if (directory / "eval.json").exists():
            raise UsageError(
                f"{directory} already holds an evaluation. Go on with --resume {directory}, or choose another."
            )
    finished, code = run_interruptible(_evaluate(config, directory, new=not resume))
    if finished is None:
        words.print(f"Stopped. Go on with: benchmax eval --resume {safe(directory)}")
        raise typer.Exit(code)
    if as_json:
        print_json({"directory": str(directory), "config": config, "report": finished.report.to_dict()})
    else:
        print_report(finished.report, directory)
    raise typer.Exit(FAILED if finished.report.scored == 0 else 0)


def _nothing_but_resume(context: typer.Context) -> None:
    """A resumed evaluation goes on as it was begun."""
    given = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    others = [name.replace("_", "-") for name in given if name not in ("resume", "as_json")]
    if others:
        raise UsageError(f"--resume takes no other arguments, and {', '.join(others)} was given. Leave it out.")


async def _evaluate(config: dict[str, Any], directory: Path, *, new: bool) -> Evaluation:
    env_class = load_env_class(config["env"])
    examples = load_rows(env_class, config["data"], config["rows"])
    settings = RolloutSettings(max_turns=config["max_turns"], sampling=Sampling(**config["sampling"]))
    model = open_model(
        config["model"], env_class=env_class, examples=examples, base_url=config["base_url"],
        api_key_var=config["api_key_var"],
    )  # fmt: skip
    if new:
        save_config(directory, config)
    total = len({example["id"] for example in examples}) * config["group_size"]
    async with model, EnvHost(lambda: env_class(**config["env_args"])) as host:
        with progress(f"{env_class.__name__} × {model.name}", total) as told:
            result = await evaluate(
                host, examples, model, settings, group_size=config["group_size"], concurrency=config["concurrency"],
                directory=directory, on_rollout=told,
            )  # fmt: skip
    if result.duplicates:
        words.print(f"[yellow]{result.duplicates} duplicate rows were left out.[/]")
    return result


def load_rows(env_class: type[BaseEnv], data: str | None, rows: int | None) -> list[Example]:
    """Examples from a file, or from the environment's own loader."""
    from benchmax.envs.datasets import load_examples

    if data is not None and (data.startswith("hf:") or Path(data).suffix):
        if not data.startswith("hf:") and not Path(data).exists():
            raise NotFoundError(f"There is no file {data}. Check the path.")
        return load_examples(data, env_class, limit=rows).examples
    if data is None and not overrides(env_class, "load_dataset"):
        raise UsageError(f"{env_class.__name__} brings no rows of its own. Give some with --data FILE.")
    source, _ = env_class.load_dataset(*([data] if data else []))
    return load_examples(source, env_class, limit=rows).examples


def parse_env_args(pairs: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE pairs; a value that is JSON is read as such."""
    arguments: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--env-arg {pair!r} is not KEY=VALUE. Write it like --env-arg difficulty=2.")
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return arguments


def _new_directory(env: str) -> Path:
    name = Path(env.partition(":")[0]).stem.rpartition(".")[2] or "env"
    return Path("runs") / f"eval-{name}-{datetime.now():%Y%m%d-%H%M%S}"


def run_interruptible(work: Coroutine[Any, Any, T]) -> tuple[T | None, int]:
    """Run to the end, or until Ctrl-C: once cancels and cleans up, twice ends at once."""

    async def watched() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, _cancel_or_exit(task))
        return await task

    try:
        return asyncio.run(watched()), 0
    except asyncio.CancelledError:
        return None, INTERRUPTED


def _cancel_or_exit(task: asyncio.Task[Any]) -> Callable[[], None]:
    import os

    def handle() -> None:
        if task.cancelling():
            os._exit(INTERRUPTED)
        task.cancel()

    return handle


def show_estimate(value: Estimate | None) -> str:
    if value is None:
        return "–"
    if value.n < 2:
        return f"{value.mean:.3f}"
    return f"{value.mean:.3f}  [{value.low:.3f}, {value.high:.3f}]"


def print_report(report: Report, directory: Path) -> None:
    """The report as a table."""
    table = Table(box=None, show_header=False)
    table.add_row("examples × samples", f"{report.examples} × {report.rollouts / max(1, report.examples):g}")
    table.add_row("reward", safe(show_estimate(report.reward)), style="bold")
    for name, value in report.components.items():
        table.add_row(f"  {safe(name)}", safe(show_estimate(value)))
    table.add_row("solve rate", safe(show_estimate(report.solve_rate)))
    for k in sorted(report.pass_at):
        table.add_row(f"pass@{k}", safe(show_estimate(report.pass_at[k])))
        table.add_row(f"max@{k}", safe(show_estimate(report.max_at[k])))
    table.add_row("turns, tokens", f"{report.turns:.1f}, {report.completion_tokens:.0f} a rollout")
    if report.tool_calls:
        table.add_row("tool calls", f"{report.tool_calls:.1f} a rollout, {report.tool_errors} failed")
    table.add_row("tokens in all", f"{report.prompt_tokens_total:,} in, {report.completion_tokens_total:,} out")
    if report.cost_usd:
        table.add_row("cost", f"${report.cost_usd:.4f}")
    table.add_row("seconds", f"{report.seconds_p50:.2f} median, {report.seconds_p95:.2f} p95")
    table.add_row("ended", safe(", ".join(f"{name} {count}" for name, count in report.terminations.items())))
    for title, counts in (("unscored", report.unscored), ("errors", report.errors)):
        if counts:
            table.add_row(f"[red]{title}[/]", safe(", ".join(f"{name} {count}" for name, count in counts.items())))
    table.add_row("kept in", safe(directory))
    Console().print(table)


def compare(
    base: Annotated[Path, typer.Argument(help="The evaluation to compare with.")],
    other: Annotated[Path, typer.Argument(help="The evaluation that should be better.")],
    limit: Annotated[int, typer.Option(help="Examples shown; 0 for all.")] = 20,
    as_json: Json = False,
) -> None:
    """Compare two evaluations example by example, worst regression first."""
    comparison = compare_rollouts(_read(base), _read(other))
    if as_json:
        print_json(comparison.to_dict())
        return
    _print_comparison(comparison, limit)


def _read(directory: Path) -> list[Rollout]:
    if not directory.exists():
        raise NotFoundError(f"There is nothing at {directory}. Give the folder of an evaluation.")
    return list(latest_rollouts(directory).values())


def _print_comparison(comparison: Comparison, limit: int) -> None:
    out = Console()
    delta = safe(show_estimate(comparison.reward))
    out.print(f"[bold]{comparison.verdict}[/]: reward {delta} on {len(comparison.pairs)} examples")
    for name, value in comparison.components.items():
        out.print(f"  {safe(name)} {safe(show_estimate(value))}")
    if comparison.only_in_base or comparison.only_in_other:
        out.print(
            f"left out: {comparison.only_in_base} only in the first, {comparison.only_in_other} only in the second"
        )
    shown = comparison.pairs[: limit or None]
    table = Table("example", "prompt", "base", "other", "delta", box=None, header_style="bold")
    for pair in shown:
        row = pair.to_dict()
        table.add_row(
            pair.example_id[:10],
            safe(shorten(row["prompt"])),
            f"{pair.base:.3f}",
            f"{pair.other:.3f}",
            f"{pair.delta:+.3f}",
        )
    out.print(table)
    if len(shown) < len(comparison.pairs):
        out.print(f"{len(shown)} shown, {len(comparison.pairs) - len(shown)} more; --limit 0 shows all")


def replay(
    directory: Annotated[Path, typer.Argument(help="The evaluation whose rollouts are scored again.")],
    env: Annotated[str | None, typer.Option(help="The environment; the evaluation's own when not given.")] = None,
    env_arg: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment's constructor.")] = None,
    limit: Annotated[int, typer.Option(help="Changed rollouts shown; 0 for all.")] = 20,
    as_json: Json = False,
) -> None:
    """Score saved rollouts again after a reward was edited, and show what changes. The model is not called."""
    config = read_config(directory)
    env_class = load_env_class(env or config["env"])
    arguments = parse_env_args(env_arg) if env_arg else config["env_args"]
    pairs, code = run_interruptible(_replay(env_class, arguments, _read(directory)))
    if pairs is None:
        raise typer.Exit(code)
    comparison = compare_rollouts((before for before, _ in pairs), (after for _, after in pairs))
    changed = [(a, b) for a, b in pairs if (a.rewards, a.unscored) != (b.rewards, b.unscored)]
    if as_json:
        print_json({"rollouts": len(pairs), "changed": len(changed), "comparison": comparison.to_dict()})
        return
    Console().print(f"{len(changed)} of {len(pairs)} rollouts score differently now")
    _print_comparison(comparison, limit)


async def _replay(
    env_class: type[BaseEnv], arguments: dict[str, Any], rollouts: list[Rollout]
) -> list[tuple[Rollout, Rollout]]:
    async with EnvHost(lambda: env_class(**arguments)) as host:
        return [pair async for pair in replay_rollouts(host, rollouts)]
