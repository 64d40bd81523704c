"""`benchmax eval`, `compare` and `replay`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Coroutine
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from benchmax import limits
from benchmax.cli.exit_codes import FAILED, INTERRUPTED
from benchmax.cli.local.models import open_named
from benchmax.cli.local.signal_report import print_signal, signal_in
from benchmax.cli.output import Json, print_json, safe, stderr, stdout
from benchmax.cli.progress import progress
from benchmax.cli.project import ApiKeyVar, BaseUrl, EnvArgs, Lenient, Sandbox, refuse_server_without_model
from benchmax.cli.tables import print_comparison, print_report
from benchmax.concurrency import stop_signals
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.composed.parts import short_name
from benchmax.envs.loading import load_env_class, make_env, parse_env_args
from benchmax.errors import NotFoundError, UsageError
from benchmax.evaluation.compare import compare as compare_rollouts
from benchmax.evaluation.evaluate import Evaluation, evaluate_named
from benchmax.evaluation.report import by_example
from benchmax.evaluation.resume import CONFIG, EvalSpec, read_config, require_new, resumable
from benchmax.models.registry import GOLD, is_scripted
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import latest_rollouts
from benchmax.rollouts.replay import replay as replay_rollouts

T = TypeVar("T")


def evaluate_command(
    context: typer.Context,
    env: Annotated[str | None, typer.Argument(help="arithmetic, main.py[:Class] or package.module.Class.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Rows: a JSONL, JSON, CSV or parquet file, or a name the environment loads.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A model here or on the server, RUN[:CHECKPOINT], scripted:TEXT, scripted:gold (default).",
        ),
    ] = None,
    base_url: BaseUrl = None,
    api_key_var: ApiKeyVar = None,
    rows: Annotated[
        int | None, typer.Option("--rows", "-n", min=1, help="How many examples; all when not given.")
    ] = None,
    lenient: Lenient = False,
    group_size: Annotated[int, typer.Option("--group-size", "-r", min=1, help="Samples of each example.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="Rollouts in flight at once.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0)] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens in one turn.")] = 1024,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the model's sampling; every rollout derives its own.")
    ] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Model turns in one rollout.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option(min=0, help="Tool calls in one rollout.")] = None,
    tool_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds for one tool call.")] = limits.TOOL_SECONDS,
    reward_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the reward of one rollout.")
    ] = limits.REWARD_SECONDS,
    env_arg: EnvArgs = None,
    sandbox: Sandbox = False,
    out: Annotated[Path | None, typer.Option(help="The run's folder; one under runs/ when not given.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue in this run's folder; takes no other arguments.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model on an environment: reward, pass@k, solve rate, every component, with intervals."""
    if resume:
        _refuse_other_arguments(context)
        spec, directory = resumable(resume), resume
    else:
        if env is None:
            raise UsageError(
                "Name an environment: benchmax eval arithmetic, or benchmax eval main.py --data rows.jsonl."
            )
        refuse_server_without_model(base_url, model)
        spec = EvalSpec(
            env=env, env_args=parse_env_args(env_arg, env, data), data=data, model=model or GOLD,
            base_url=base_url, api_key_var=api_key_var, rows=rows, lenient=lenient, group_size=group_size,
            concurrency=concurrency, max_turns=max_turns, max_tool_calls=max_tool_calls, sandbox=sandbox,
            tool_seconds=tool_seconds, reward_seconds=reward_seconds,
            sampling={"temperature": temperature, "max_tokens": max_tokens, "seed": seed},
        )  # fmt: skip
        directory = out or _new_directory(env)
        require_new(directory)
    _run(spec, directory, spec if resume else spec.located(), as_json)


def _run(spec: EvalSpec, directory: Path, kept: EvalSpec, as_json: bool) -> None:
    # What an environment prints is for people, not data.
    with redirect_stdout(sys.stderr):
        finished, code = _evaluate(spec, directory, kept)
    if finished is None:
        begun = (directory / CONFIG).exists()
        advice = f"Continue with: benchmax eval --resume {safe(directory)}" if begun else "Nothing was played yet."
        stderr.print(f"Stopped. {advice}")
        raise typer.Exit(code)
    if as_json:
        print_json({"directory": str(directory), "config": asdict(kept), "report": finished.report.to_dict()})
    else:
        print_report(finished.report, directory)
        _explain_no_reward(spec, finished, directory)
    raise typer.Exit(FAILED if finished.report.scored == 0 else 0)


def _evaluate(spec: EvalSpec, directory: Path, kept: EvalSpec) -> tuple[Evaluation | None, int]:
    env, examples = spec.load()  # by the names that were typed: messages repeat them
    if examples.report.bad_rows:
        stderr.print(f"[yellow]{examples.report.bad_rows} of {examples.report.rows} rows were left out.[/]")
    model = open_named(kept.model, env.env_class, examples, spec.base_url, spec.api_key_var)
    total = len({example["id"] for example in examples}) * spec.group_size
    with progress(f"{env.env_class.__name__} × {model.name}", total) as on_rollout:
        done = run_interruptible(evaluate_named(kept, env, examples, model, directory, on_rollout))
    if done[0] is not None and done[0].duplicates:
        stderr.print(f"[yellow]{done[0].duplicates} duplicate rows were left out.[/]")
    return done


def _explain_no_reward(spec: EvalSpec, finished: Evaluation, directory: Path) -> None:
    """Where nothing was earned: what good answers earn, and what is missing from these."""
    reward = finished.report.reward
    if reward is None or reward.mean > 0 or is_scripted(spec.model):
        return
    if spec.sandbox:
        stderr.print(
            "Nothing was earned. Why is not explained, for that would run the environment's code outside of its "
            "sandbox: if you trust the code, run it without --sandbox."
        )
        return
    env, examples = replace(spec, lenient=True).load()
    groups = by_example(latest_rollouts(directory).values())
    with redirect_stdout(sys.stderr):
        signal = signal_in(env.env_class, spec.env_args, list(examples), list(groups.values()))
    print_signal(signal, spec.model)


def _refuse_other_arguments(context: typer.Context) -> None:
    """A resumed evaluation continues with the settings it began with."""
    given = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    others = [name.replace("_", "-") for name in given if name not in ("resume", "as_json")]
    if others:
        raise UsageError(f"--resume takes no other arguments, and {', '.join(others)} was given. Leave it out.")


def _new_directory(env: str) -> Path:
    first = Path("runs") / f"eval-{short_name(env)}-{datetime.now():%Y%m%d-%H%M%S}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))  # begun in the same second
    return first if not first.exists() else next(each for each in others if not each.exists())


def run_interruptible(work: Coroutine[Any, Any, T]) -> tuple[T | None, int]:
    """Run to the end, or until Ctrl-C: once cancels and cleans up, twice ends at once."""

    async def watched() -> T:
        task = asyncio.ensure_future(work)

        def cancel_or_exit() -> None:
            if task.cancelling():
                os._exit(INTERRUPTED)
            task.cancel()

        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, cancel_or_exit)
        return await task

    try:
        return asyncio.run(watched()), 0
    except asyncio.CancelledError:
        return None, INTERRUPTED


def compare(
    base: Annotated[Path, typer.Argument(help="The evaluation to compare with.")],
    other: Annotated[Path, typer.Argument(help="The evaluation that should be better.")],
    limit: Annotated[int, typer.Option(min=0, help="Examples shown; 0 for all.")] = 20,
    as_json: Json = False,
) -> None:
    """Compare two evaluations example by example, worst regression first."""
    comparison = compare_rollouts(_read(base), _read(other))
    if as_json:
        print_json(comparison.to_dict())
    else:
        print_comparison(comparison, limit)
    if not comparison.pairs:
        advice = "Evaluate both on the same rows; `benchmax show RUN --errors` shows what failed."
        stderr.print(f"The two share no scored example. {advice}")
        raise typer.Exit(FAILED)


def _read(directory: Path) -> list[Rollout]:
    if not directory.exists():
        raise NotFoundError(f"There is nothing at {directory}. Give the folder of an evaluation.")
    return list(latest_rollouts(directory).values())


def replay(
    directory: Annotated[Path, typer.Argument(help="The evaluation whose rollouts are scored again.")],
    env: Annotated[str | None, typer.Option(help="The environment; the evaluation's own when not given.")] = None,
    env_arg: EnvArgs = None,
    limit: Annotated[int, typer.Option(min=0, help="Changed rollouts shown; 0 for all.")] = 20,
    as_json: Json = False,
) -> None:
    """Score saved rollouts again after a reward was edited, and show what changes. The model is not called."""
    config = read_config(directory)
    if not env and "env" not in config:
        raise UsageError(f"{directory} does not say where its environment is. Name it with --env.")
    with redirect_stdout(sys.stderr):
        env_class = load_env_class(env) if env else load_env_class(config["env"], config.get("folder"))
        arguments = parse_env_args(env_arg) if env_arg else config.get("env_args", {})
        pairs, code = run_interruptible(_replay(env_class, arguments, _read(directory)))
    if pairs is None:
        raise typer.Exit(code)
    _print_replay(pairs, limit, as_json)
    scored = any(after.reward is not None for _, after in pairs)
    if not scored:
        reasons = Counter(why for _, after in pairs for why in after.unscored.values())
        stderr.print("None of them has a reward." + "".join(f" {safe(why)}" for why, _ in reasons.most_common(1)))
    raise typer.Exit(0 if scored else FAILED)


def _print_replay(pairs: list[tuple[Rollout, Rollout]], limit: int, as_json: bool) -> None:
    comparison = compare_rollouts((before for before, _ in pairs), (after for _, after in pairs))
    changed = sum(_score(before) != _score(after) for before, after in pairs)
    if as_json:
        print_json({"rollouts": len(pairs), "changed": changed, "comparison": comparison.to_dict()})
    elif not changed:
        stdout().print(f"All {len(pairs)} rollouts score as before.")
    else:
        stdout().print(f"{changed} of {len(pairs)} rollouts score differently now")
        print_comparison(comparison, limit)


def _score(rollout: Rollout) -> tuple[Any, ...]:
    return rollout.reward, rollout.rewards, rollout.unscored.keys()


async def _replay(
    env_class: type[BaseEnv], arguments: dict[str, Any], rollouts: list[Rollout]
) -> list[tuple[Rollout, Rollout]]:
    async with EnvHost(lambda: make_env(env_class, arguments)) as host:
        return [pair async for pair in replay_rollouts(host, rollouts)]
