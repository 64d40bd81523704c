"""`benchmax runs …`, `stop` and `resume`: what training runs on the platform do and did."""

from __future__ import annotations

import csv
import json as jsonlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmax.cli.local.show import message_lines
from benchmax.cli.output import (
    Json,
    new_table,
    print_answer,
    print_json,
    print_result,
    print_rows,
    print_table,
    safe,
    shorten,
    status_word,
    stderr,
    visible,
)
from benchmax.cli.platform.connection import RunId, Settings, platform
from benchmax.cli.platform.launch import read_settings
from benchmax.cli.platform.run_compare import compare
from benchmax.cli.platform.watch import watch
from benchmax.errors import NotFoundError, UsageError
from benchmax.limits import ERROR_CHARS
from benchmax.platform.sdk.client import TrainerClient
from benchmax.platform.sdk.requests.runs import PAGE
from benchmax.platform.sdk.static_export import export_static
from benchmax.trainer.display.view import sparkline

app = typer.Typer(help="List, follow, read and compare training runs.", no_args_is_help=True)
app.command()(watch)
app.command()(compare)

Mode = Annotated[str, typer.Option(help="train or eval.")]
_OTHER_FILES = (
    ".json", ".txt", ".tsv", ".parquet", ".xlsx", ".md", ".html", ".yaml", ".zip", ".tar", ".gz", ".gguf", ".pt",
    ".bin",
)  # fmt: skip
"""Endings of files that are not written; a folder may be called model-v1.2."""


@app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Runs shown, newest first.")] = 20,
    json: Json = False,
) -> None:
    """Show your runs, newest first."""
    with platform() as client:
        all_runs = client.list_runs()
    found = all_runs[:limit]

    def cells(run: Mapping[str, Any]) -> tuple[str, ...]:
        name, made = shorten(run["name"], 30), run["createdAt"][:16]
        return run["id"], name, status_word(run["status"]), _step(run), made, shorten(_doing(run), 60)

    print_rows(found, json, ("id", "name", "status", "step", "created", "doing"), cells)
    if len(all_runs) > len(found) and not json:
        stderr.print(f"The newest {len(found)} of {len(all_runs)}; `--limit` shows more.")


@app.command()
def get(
    run_id: RunId,
    config: Annotated[bool, typer.Option("--config", help="With the launch arguments.")] = False,
    json: Json = False,
) -> None:
    """Show one run."""
    with platform() as client:
        found = client.get_run_details(run_id)
        page = client.run(run_id).url
    if not config:
        found.pop("launcherArgs", None)
    if json:
        print_json(found | {"url": page})
        return
    table = Table(box=None, show_header=False)
    for name, value in _for_people(found | {"url": page}).items():
        text = value if isinstance(value, str) else jsonlib.dumps(value)
        table.add_row(safe(name), safe(text))
    print_table(table)


def _for_people(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run without empty fields, its status as people call it, its steps counted from 1."""
    changed = {"status": ("status", status_word(run["status"])), "totalSteps": ("step", _step(run))}
    shown = {name: value for name, value in run.items() if value not in (None, "", []) and name != "latestStep"}
    return dict(changed.get(name, (name, value)) for name, value in shown.items())


@app.command()
def status(run_id: RunId, json: Json = False) -> None:
    """Show what a run is doing, in one line."""
    with platform() as client:
        run = client.get_run(run_id)
    names = ("id", "name", "status", "statusReason", "latestStep", "totalSteps", "latestActivityMessage")
    text = f"{status_word(run['status'])}, step {_step(run)}: {_doing(run)}"
    print_result({name: run[name] for name in names}, json, text)


@app.command()
def scalars(
    run_id: RunId,
    mode: Mode = "train",
    name: Annotated[str | None, typer.Option(help="Only metrics whose name contains this.")] = None,
    json: Json = False,
) -> None:
    """Show a run's metrics: first, last, lowest, highest, and their course."""
    with platform() as client:
        found = client.get_run_scalars(run_id, mode)
    found = {key: points for key, points in found.items() if points and (name is None or name in key)}
    if json:
        print_json(found)
        return
    table = new_table("metric", "first", "last", "lowest", "highest", "course")
    for key, points in sorted(found.items()):
        values = [point["value"] for point in points]
        numbers = (values[0], values[-1], min(values), max(values))
        table.add_row(safe(key), *(f"{number:.4g}" for number in numbers), sparkline(values))
    print_table(table)


@app.command()
def logs(
    run_id: RunId,
    rollout_id: Annotated[str | None, typer.Option(help="Only what was logged during this rollout.")] = None,
    process: Annotated[
        str, typer.Option(help="environment: what it logged. trainer: its log. child: all that was printed.")
    ] = "environment",
    level: Annotated[str | None, typer.Option(help="Only from this level on: DEBUG, INFO, WARNING, ERROR.")] = None,
    json: Json = False,
) -> None:
    """Show what the environment logged, or what another process of the run wrote."""
    with platform() as client:
        if rollout_id is not None or (process == "environment" and level is None):
            found = client.iter_environment_logs(run_id, rollout_id=rollout_id)
        else:
            found = client.iter_run_logs(run_id, process, level=level and level.upper())
        if json:
            print_json(list(found))
            return
        for entry in found:
            what = entry.get("rolloutId") or entry.get("process") or "-"
            typer.echo(visible(f"{entry['createdAt'] or '-'} {entry['level']} {what} {entry['message']}"))
            for traced in (entry.get("traceback") or "").splitlines():
                typer.echo("    " + visible(traced))


@app.command()
def rollouts(
    run_id: RunId,
    mode: Mode = "eval",
    example: Annotated[str | None, typer.Option(help="Only those of this example (promptMessageId).")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, help="How many.")] = 50,
    json: Json = False,
) -> None:
    """Show a run's rollouts, newest step first."""
    with platform() as client:
        _check_mode(client, run_id, mode)
        if example is not None:
            played = client.get_rollout_heatmap(run_id, example, mode=mode)
            found = sorted(played, key=lambda each: -int(each["step"]))[:limit]
            if not found:
                raise NotFoundError(f"There is no such example among the {mode} rollouts. `runs rollouts` shows them.")
        else:
            found = client.list_rollouts(run_id, mode=mode, limit=limit)

    def cells(row: Mapping[str, Any]) -> tuple[object, ...]:
        step = row["step"] + 1 if mode == "train" else row["step"]  # in the step it is from, after so many steps
        of, prompt = row.get("promptMessageId", example), shorten(row.get("promptText", ""), 60)
        return row["id"], step, _number(row["totalReward"]), row.get("termination", ""), of, prompt

    print_rows(found, json, ("id", "step", "reward", "ended", "example", "prompt"), cells)


def _check_mode(client: TrainerClient, run_id: str, mode: str) -> None:
    there = {"train", "eval", *client.get_run_details(run_id)["modes"]}
    if mode not in there:
        raise UsageError(f"There is no mode {mode!r}. Use one of: {', '.join(sorted(there))}.")


@app.command()
def rollout(
    run_id: RunId,
    rollout_id: Annotated[str, typer.Argument(help="The rollout's id, as `runs rollouts` shows it.")],
    json: Json = False,
) -> None:
    """Show one rollout in full: every turn, the task, every reward."""
    with platform() as client:
        found = client.get_rollout_details(run_id, rollout_id)
    if json:
        print_json(found)
        return
    for message in [*found["promptMessages"], *found["messages"]]:
        typer.echo("\n".join(message_lines(message)))
    typer.echo(visible(f"[task] {jsonlib.dumps(found['task'], ensure_ascii=False)}"))
    rewards = ", ".join(f"{shorten(each['name'])} {_number(each['value'])}" for each in found["rewards"])
    typer.echo(f"[reward] {_number(found['totalReward'])} ({rewards})")
    for name, why in (found.get("unscored") or {}).items():
        typer.echo(f"[unscored] {shorten(name)}: {shorten(why, ERROR_CHARS)}")
    if found.get("error"):
        typer.echo(f"[error] {shorten(found['error'], ERROR_CHARS)}")


@app.command()
def export(
    run_id: RunId,
    out: Annotated[Path, typer.Argument(help="FILE.csv: metrics. FILE.jsonl: rollouts. Else a folder: the model.")],
    mode: Mode = "eval",
    checkpoint: Annotated[str, typer.Option(help="best, latest or step-N.")] = "best",
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter, in peft's format.")] = False,
    static: Annotated[
        bool, typer.Option("--static", help="A folder with the run's pages, to open without a server.")
    ] = False,
    rollouts: Annotated[int, typer.Option(min=1, help="Rollouts in the pages of --static, at most.")] = 2_000,
    json: Json = False,
) -> None:
    """Write a run's metrics, its rollouts, its trained model, or its pages."""
    if not static and out.suffix.lower() in _OTHER_FILES:
        raise UsageError(
            f"{out.name}: metrics are written to .csv, rollouts to .jsonl, a model to a folder. Choose one."
        )
    with platform() as client:
        run = client.get_run_details(run_id)
        if static:
            done = export_static(client, run_id, out, most=rollouts)
            what = f"the run's pages with {done.rollouts:,} of {done.total:,} rollouts (open index.html)"
        elif out.suffix.lower() == ".csv":
            what = f"{_write_csv(out, client, run)} points"
        elif out.suffix.lower() == ".jsonl":
            what = f"{_write_rollouts(out, client, run_id, mode)} rollouts"
        else:
            stderr.print(f"Fetching {safe(checkpoint)}; the platform makes it ready first.")
            kind = "adapter" if adapter else "merged"
            chosen = client.download_checkpoint(run_id, out, checkpoint, format=kind)
            what = f"the {'adapter' if adapter else 'model'} of checkpoint {chosen}"
    stderr.print(f"Wrote {what} to {safe(out)}")
    if json:
        print_json({"run": run_id, "path": str(out), "wrote": what})


def _write_csv(out: Path, client: TrainerClient, run: Mapping[str, Any]) -> int:
    count = 0
    with open(out, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("mode", "step", "name", "value"))
        for mode in run["modes"]:
            for name, points in client.get_run_scalars(run["id"], mode).items():
                table.writerows((mode, point["step"], name, point["value"]) for point in points)
                count += len(points)
    return count


def _write_rollouts(out: Path, client: TrainerClient, run_id: str, mode: str) -> int:
    """Whole rollouts, one a line."""
    count = 0
    with open(out, "w", encoding="utf-8") as file:
        for row in client.iter_rollouts(run_id, mode=mode):
            file.write(jsonlib.dumps(client.get_rollout_details(run_id, row["id"])) + "\n")
            count += 1
    return count


# Ending and going on


@app.command()
def fork(
    run_id: RunId,
    checkpoint: Annotated[str, typer.Option(help="best, latest or step-N.")] = "best",
    name: Annotated[str | None, typer.Option(help="The new run's name.")] = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Start a run that begins with a checkpoint of another, also of one that is complete."""
    with platform() as client:
        changed, _ = read_settings(client.list_launch_args(), setting or ())
        run = client.run(client.fork_run(run_id, checkpoint, name=name, launcher_args=changed))
    stderr.print(f"Run {safe(run.id)} continues from {safe(checkpoint)} of {safe(run_id)}: {safe(run.url)}")
    if json:
        print_json({"runId": run.id, "url": run.url})


def stop(run_id: RunId, json: Json = False) -> None:
    """Stop a run. It saves what it has; `benchmax resume` continues it."""
    with platform() as client:
        print_answer(client.cancel_run(run_id), json)


def resume(run_id: RunId, json: Json = False) -> None:
    """Resume a run that was stopped or cut off, from its last checkpoint."""
    with platform() as client:
        print_answer(client.resume_run(run_id), json)


# Words


def _step(run: Mapping[str, Any]) -> str:
    """How many steps are done, of how many; steps count from 0 on the wire."""
    done = 0 if run["latestStep"] is None else run["latestStep"] + 1
    return f"{done}/{run['totalSteps']}" if run["totalSteps"] else str(done)


def _doing(run: Mapping[str, Any]) -> str:
    """What it does, or how it ended."""
    return str(run["statusReason"] if run["endedAt"] else run["latestActivityMessage"] or run["statusReason"])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
