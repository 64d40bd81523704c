"""`benchmax train`, `export` and `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.cli.output import INTERRUPTED, safe, words
from benchmax.errors import UsageError

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""How `train` is mounted: settings come as dotted flags that typer does not know."""


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
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every draw.")] = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave unusable rows out instead of stopping.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="List every setting and end.")] = False,
) -> None:
    """Train a model on an environment with GRPO. Any setting is a flag: --optim.lr 5e-4, --rollouts.group_size 16."""
    from benchmax.trainer import config as tree

    if settings:
        _list_settings()
        return
    env, flags = _env_and_flags([*([env] if env else []), *context.args])
    given = {
        "data": _given(env=env, train=data, eval=eval_data, lenient=lenient or None),
        "model": _given(name=model),
        "limits": _given(steps=steps),
        **_given(seed=seed),
    }
    values = {section: value for section, value in given.items() if value != {}}
    if resume:
        changes = tree.flags_tree(flags, values)
        if not _finished(resume, changes):
            _run(resume, changes)
    else:
        _run(tree.load_config(config, flags, **values))


def _env_and_flags(words: list[str]) -> tuple[str | None, list[str]]:
    """The words typer does not know, in order: settings with their values, and the environment among them."""
    env: str | None = None
    flags: list[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            if env:
                raise UsageError(
                    f"{word!r} is one word too many: the environment is {env!r}. "
                    "Give rows with --data, and put quotes around what has spaces in it."
                )
            env = word
            continue
        flags.append(word)
        if "=" not in word and words and not words[0].startswith("--"):
            flags.append(words.pop(0))
    return env, flags


def export(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    checkpoint: Annotated[str, typer.Option(help="best, latest or step-N.")] = "best",
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter, in peft's format.")] = False,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
) -> None:
    """Write a trained checkpoint as a model directory that plain transformers loads."""
    from benchmax.errors import ConfigError
    from benchmax.trainer.export import choose_checkpoint, export_adapter, export_merged

    if dtype not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"--dtype {dtype} is not known. Use float32, bfloat16 or float16.")
    chosen = choose_checkpoint(run, checkpoint).path.name
    if adapter:
        export_adapter(run, out, which=chosen)
    else:
        export_merged(run, out, which=chosen, dtype=dtype)
    best = " (the best)" if checkpoint == "best" else ""
    words.print(f"Wrote {safe(out)} from checkpoint {chosen}{best}.", soft_wrap=True)


def plot(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    out: Annotated[Path, typer.Argument(help="The picture: a .png or .svg file.")] = Path("reward.png"),
    title: Annotated[str | None, typer.Option(help="Title of the picture.")] = None,
) -> None:
    """Draw a run's reward curve."""
    from benchmax.trainer.plot import plot_run

    plot_run(run, out, title=title)
    words.print(f"Wrote {safe(out)}")


def _finished(run: Path, changes: dict[str, Any]) -> bool:
    """Whether there is nothing left to do, and then say so."""
    from benchmax.trainer.rundir import check_run, read_status

    check_run(run)
    status = read_status(run)
    more = changes.get("limits", {}).get("steps")
    if status.get("state") != "complete" or (changes and (set(changes) != {"limits"} or not _within(more, status))):
        return False
    done = status["step"]
    words.print(
        f"{safe(run)} is complete after {done} steps ({status.get('reason', 'steps')}); there is nothing to do.",
        soft_wrap=True,
    )
    words.print(
        f"To train on, change what ended it, such as: benchmax train --resume {safe(run)} --steps {2 * done or 1}",
        soft_wrap=True,
    )
    return True


def _within(steps: Any, status: dict[str, Any]) -> bool:
    return isinstance(steps, int) and 0 < steps <= status["step"]


def _run(target: Any, changes: dict[str, Any] | None = None) -> None:
    import asyncio

    from benchmax.trainer import start
    from benchmax.trainer.rundir import read_config
    from benchmax.trainer.view import open_view

    resuming = isinstance(target, Path)
    steps = (changes or {}).get("limits", {}).get("steps") or (read_config(target) if resuming else target).limits.steps
    with open_view(steps) as view:
        work = start.resume(target, changes=changes, on_event=view) if resuming else start.train(target, on_event=view)
        outcome = asyncio.run(work)
    if outcome.reason == "interrupted":
        words.print(
            f"Stopped after {outcome.step} steps; saved. Go on with: benchmax train --resume {safe(outcome.path)}",
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED)
    before, after = outcome.first_eval, outcome.last_eval
    for name, title in (("reward/mean", "held-out reward"), ("solve_rate", "held-out solved")):
        if name in before and name in after:
            words.print(f"{title}: {before[name]:.2f} before, [bold]{after[name]:.2f}[/] after {outcome.step} steps")
    if not outcome.learned:
        words.print(
            "[yellow]No step taught the model anything: in every group all answers earned the same.[/] "
            "See the alerts in events.jsonl, and read some rollouts with `benchmax show`.",
            soft_wrap=True,
        )
    words.print(f"Done: {safe(outcome.path)}", soft_wrap=True)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _list_settings() -> None:
    from benchmax.trainer.config import fields

    for name, kind, default, doc in fields():
        typer.echo(f"--{name} {kind} = {default}\n    {doc}")
