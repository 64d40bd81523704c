"""`benchmax train`, `export` and `plot`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from benchmax.cli.exit_codes import INTERRUPTED
from benchmax.cli.output import safe, shorten, stderr
from benchmax.cli.project import EnvArgs, Lenient, Sandbox
from benchmax.envs.loading import parse_env_args
from benchmax.errors import ConfigError, UsageError
from benchmax.trainer.display.broken_pipes import ignoring_broken_pipes
from benchmax.trainer.open_checkpoint import split_checkpoint

if TYPE_CHECKING:
    from benchmax.trainer.display.summary import Answer
    from benchmax.trainer.progress import Outcome

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""How `train` is mounted: settings come as dotted flags that typer does not know."""
ENDED_BEFORE_STEP_1 = {
    "target": "The held-out reward had reached eval.target",
    "time": "limits.seconds was over",
    "patience": "eval.patience was over",
}
"""Why a run ended without a step, by the reason of its end. The backend of a plug-in may have others."""


def train(
    context: typer.Context,
    env: Annotated[str | None, typer.Argument(help="arithmetic, main.py[:Class] or package.module.Class.")] = None,
    data: Annotated[str | None, typer.Option(help="Training rows: a file, or a name the environment loads.")] = None,
    eval_data: Annotated[
        str | None, typer.Option(help="Held-out rows; a share of the training rows if not given.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A name of the store, a directory or a file.")
    ] = None,
    env_arg: EnvArgs = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with the run in this folder, or FOLDER:step-N from an earlier checkpoint.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="What trains: embedded, or a plug-in's name.")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all sampling.")] = None,
    lenient: Lenient = False,
    sandbox: Sandbox = False,
    settings: Annotated[bool, typer.Option("--settings", help="List every setting and end.")] = False,
) -> None:
    """Train a model on an environment with GRPO. Any setting is a flag: --optim.lr 5e-4, --rollouts.group_size 16."""
    from benchmax.trainer import config as tree

    if settings:
        for name, kind, default, doc in tree.fields():
            typer.echo(f"--{name} {kind} = {default}\n    {doc}")
        return
    env, flags = _env_and_flags([*([env] if env else []), *context.args])
    given = {
        "data": _given(
            env=env,
            env_args=parse_env_args(env_arg, env, data) or None,
            train=data,
            eval=eval_data,
            lenient=lenient or None,
            sandbox=sandbox or None,
        ),
        "model": _given(name=model),
        "limits": _given(steps=steps),
        **_given(seed=seed, backend=backend),
    }
    values = {section: value for section, value in given.items() if value != {}}
    if resume:
        _resume(resume, tree.flags_tree(flags, values))
    else:
        _run(tree.load_config(config, flags, **values))


def _resume(target: str, changes: dict[str, Any]) -> None:
    from benchmax.trainer.ending import ending_again
    from benchmax.trainer.rundir import check_run, read_config
    from benchmax.trainer.start import check_changes

    folder, checkpoint = split_checkpoint(target)
    run = Path(folder)
    check_run(run)
    check_changes(read_config(run), changes)
    ending = None if checkpoint else ending_again(run, changes)
    if ending is None:
        _run(run, changes, checkpoint or "latest")
        return
    ended = f"{ending.setting} ({ending.value}) ended it, so there is nothing to do."
    stderr.print(f"{safe(run)} is complete after {ending.steps} steps: {ended}")
    again = f"benchmax train --resume {safe(run)} --{ending.setting} {ending.enough}"
    stderr.print(f"To train on, change that: {again}")


def _env_and_flags(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The arguments typer does not know, in order: settings with their values, and the environment among them."""
    env: str | None = None
    flags: list[str] = []
    while arguments:
        word = arguments.pop(0)
        if not word.startswith("--"):
            if env:
                raise UsageError(
                    f"{word!r} is one word too many: the environment is {env!r}. "
                    "Give rows with --data, and put quotes around what has spaces in it."
                )
            env = word
            continue
        flags.append(word)
        if "=" not in word and arguments and not arguments[0].startswith("--"):
            flags.append(arguments.pop(0))
    return env, flags


def export(
    run: Annotated[str, typer.Argument(help="The run's folder, or FOLDER:CHECKPOINT.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    checkpoint: Annotated[str, typer.Option(help="best, latest or step-N.")] = "best",
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter, in peft's format.")] = False,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
) -> None:
    """Write a trained checkpoint as a model directory that plain transformers loads."""
    from benchmax.trainer.checkpoint import choose_checkpoint
    from benchmax.trainer.export import export_adapter, export_merged

    if dtype not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"--dtype {dtype} is not known. Use float32, bfloat16 or float16.")
    folder, named = split_checkpoint(run)
    checkpoint = named or checkpoint
    chosen = choose_checkpoint(Path(folder), checkpoint).path
    if adapter:
        export_adapter(Path(folder), out, which=chosen.name)
    else:
        export_merged(Path(folder), out, which=chosen.name, dtype=dtype)
    best = (chosen.parent / "best").exists()
    which = f" ({'the best' if best else 'the latest; none is known as the best'})" if checkpoint == "best" else ""
    stderr.print(f"Wrote {safe(out)} from checkpoint {chosen.name}{which}.")


def plot(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    out: Annotated[Path, typer.Argument(help="The picture: a .png or .svg file.")] = Path("reward.png"),
    title: Annotated[str | None, typer.Option(help="Title of the picture.")] = None,
) -> None:
    """Draw a run's reward curve."""
    from benchmax.trainer.display.plot import plot_run

    plot_run(run, out, title=title)
    stderr.print(f"Wrote {safe(out)}")


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Until the trainer handles it, Ctrl-C ends what is being loaded; asyncio's own handler waits for an `await`."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, or someone else's
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@ignoring_broken_pipes()
def _run(target: Any, changes: dict[str, Any] | None = None, checkpoint: str = "latest") -> None:
    import asyncio

    from benchmax.trainer import start
    from benchmax.trainer.backend import EMBEDDED, open_backend
    from benchmax.trainer.display.view import open_view
    from benchmax.trainer.rundir import read_config
    from benchmax.trainer.task import load_task

    resuming = isinstance(target, Path)
    config = read_config(target) if resuming else target
    if config.backend != EMBEDDED:
        open_backend(config.backend)  # one that is not there is reported before anything is loaded
    with open_view((changes or {}).get("limits", {}).get("steps") or config.limits.steps) as view:
        task = load_task(config)  # outside of the loop, so that Ctrl-C ends it
        work = (
            start.resume(target, checkpoint=checkpoint, task=task, changes=changes, on_event=view)
            if resuming
            else start.train(target, task=task, on_event=view)
        )
        with _interrupted_at_once():
            outcome = asyncio.run(work)
    if outcome.reason == "interrupted":
        saved = "; saved" if (outcome.path / "checkpoints" / "latest").exists() else " of training"
        stderr.print(
            f"Stopped after {outcome.step} steps{saved}. Go on with: benchmax train --resume {safe(outcome.path)}"
        )
        raise typer.Exit(INTERRUPTED)
    _show_what_was_learned(outcome)
    if not outcome.step:
        why = ENDED_BEFORE_STEP_1.get(outcome.reason) or outcome.message or f"The run ended ({outcome.reason})"
        stderr.print(f"[yellow]{safe(why)} before the first step, so nothing was trained.[/]")
    elif outcome.message:
        stderr.print(f"[yellow]{safe(outcome.message)}[/]")
    elif not outcome.learned:
        stderr.print(
            "[yellow]No step taught the model anything: in every group all scored answers earned the same.[/] "
            "See the alerts in events.jsonl, and read some rollouts with `benchmax show`."
        )
    stderr.print(f"Done: {safe(outcome.path)}")


def _show_what_was_learned(outcome: Outcome) -> None:
    """The way of the held-out reward, and three questions answered before and after."""
    from benchmax.trainer.display.summary import summarise

    found = summarise(outcome.path, outcome.best_step)
    if found.before is not None and outcome.step:
        stderr.print(f"[bold]{safe(found.headline())}[/]")
        if found.ended_by_themselves is not None:
            stderr.print(f"answers that end by themselves: {found.ended_by_themselves:.0%}")
    if found.pairs:
        table = Table(title="held-out questions, before and after", title_justify="left", box=box.SIMPLE)
        for column in ("question", "before", "after"):
            table.add_column(column, overflow="fold", ratio=1)
        for pair in found.pairs:
            table.add_row(safe(shorten(pair.question, 160)), _answer(pair.before), _answer(pair.after))
        stderr.print(table, soft_wrap=False)


def _answer(answer: Answer) -> str:
    reward = "unscored" if answer.reward is None else f"{answer.reward:.2f}"
    return f"{safe(shorten(answer.text, 160))}\n[dim]{reward}{', cut off' if answer.cut_off else ''}[/]"


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
