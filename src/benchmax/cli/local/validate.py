"""`benchmax validate`: the doctor on the command line.

Exit codes: 0 no errors, 1 errors were found (with --strict: warnings too), 2 wrong usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated

import typer
from rich.table import Table

from benchmax.cli.exit_codes import FAILED
from benchmax.cli.local.signal_report import print_signal, signal_of
from benchmax.cli.output import Json, print_json, safe, shorten, stderr, visible
from benchmax.cli.platform.validate_remote import RemotePlay
from benchmax.cli.progress import fetching
from benchmax.cli.project import (
    EXAMINATION,
    LAUNCH_KEYS,
    VALIDATE_KEYS,
    ApiKeyVar,
    BaseUrl,
    ProjectOptions,
    project_command,
    project_config,
    rereadable,
)
from benchmax.doctor import Diagnosis, examine_apart
from benchmax.doctor.findings import HOLDS, MARKS
from benchmax.envs.datasets.load import load_examples
from benchmax.errors import UsageError
from benchmax.models.registry import check_model
from benchmax.platform.validation import answer_lines, check_lines, problem_lines

_STYLES = {"error": "red", "warning": "yellow", "info": "cyan", "passed": "green", "skipped": "dim"}
_SHOWN_PROBES = ("gold", "wrong", "empty-tags", "garbage", "nothing")


@project_command
def validate(
    project: ProjectOptions,
    examples: Annotated[int | None, typer.Option(min=1, help="Examples to play (8).")] = None,
    group_samples: Annotated[int | None, typer.Option(min=1, help="Siblings in a group (2).")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Model turns in one rollout.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option(min=0, help="Tool calls in one rollout.")] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the examples (0).")] = None,
    pace: Annotated[str | None, typer.Option(help="How long to wait for hooks: quick, normal or patient.")] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Then play --examples rows (2) on the platform, as a run would.")
    ] = False,
    local_only: Annotated[
        bool, typer.Option("--local-only", help="Do not ask the platform, as without --remote.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Let this model try, and say whether it can learn; with --remote, a model of the platform.",
        ),
    ] = None,
    base_url: BaseUrl = None,
    api_key_var: ApiKeyVar = None,
    reward_audit: Annotated[bool, typer.Option("--reward-audit", help="Show every answer and what it earned.")] = False,
    full_messages: Annotated[
        bool, typer.Option("--full-messages", help="The same, and every message of what the platform played.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the checks that passed or were skipped, too.")
    ] = False,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail, too.")] = False,
) -> None:
    """Learn before training whether an environment is broken, empty or can be cheated."""
    given = {
        "examples": examples, "group_samples": group_samples, "max_turns": max_turns,
        "max_tool_calls": max_tool_calls, "pace": pace, "seed": seed,
    }  # fmt: skip
    _check_remote_options(remote, local_only, project.pip)
    # What an environment prints is not data.
    with redirect_stdout(sys.stderr):
        cls = project.load_class()
        config = project_config(cls, "VALIDATE_CONFIG", VALIDATE_KEYS)
        options = {key: value for key, value in given.items() if value is not None}
        rows, eval_rows = project.rows(cls)
        arguments = project.arguments(cls, config)
        settings = {**{key: config[key] for key in EXAMINATION if key in config}, **options}
        there = None
        if remote:
            packages = project.pip or project_config(cls, "LAUNCH_CONFIG", LAUNCH_KEYS).get("pip", ())
            there = RemotePlay.find(model, packages)
            rows, eval_rows = rereadable(rows), None if eval_rows is None else rereadable(eval_rows)
        rows = rereadable(rows) if model else rows
        if model and not remote:
            with fetching(model) as say:
                check_model(model, base_url, say=say)
        diagnosis = examine_apart(cls, arguments, rows=rows, eval_rows=eval_rows, **settings)
        if not as_json:
            _show(diagnosis, verbose=verbose, audit=reward_audit or full_messages)
        signal = None
        if model and not remote and not diagnosis.find(HOLDS):
            tried = load_examples(rows, cls, lenient=True).examples
            signal = signal_of(cls, arguments, tried, model, base_url, api_key_var)
            if not as_json:
                print_signal(signal, model)
        played = there and there.play(cls, arguments, (rows, eval_rows), settings, _plain, full_messages)
    if as_json:
        more = ({"remote": played} if played else {}) | ({"signal": signal.to_dict()} if signal else {})
        print_json(diagnosis.to_dict() | more)
    if not diagnosis.ok or (strict and diagnosis.warnings) or (played and not played["ok"]):
        raise typer.Exit(FAILED)


def _check_remote_options(remote: bool, local_only: bool, pip: Sequence[str] | None) -> None:
    if remote and local_only:
        raise UsageError("--remote and --local-only contradict one another. Leave one of them out.")
    if not remote and pip:
        stderr.print("--pip is for the platform. Add --remote to ask it.")


# Output


def _show(diagnosis: Diagnosis, *, verbose: bool, audit: bool) -> None:
    if stderr.is_terminal:
        stderr.print(_check_table(diagnosis, verbose), soft_wrap=False)
        for finding in diagnosis.findings if verbose else [*diagnosis.errors, *diagnosis.warnings]:
            stderr.print(f"[{_STYLES[finding.severity]}]{safe(str(finding))}[/]")
    else:
        for line in check_lines(diagnosis) if verbose else problem_lines(diagnosis):
            _plain(line)
    for line in answer_lines(diagnosis) if audit else ():
        _plain(line)
    if diagnosis.components:
        stderr.print(_component_table(diagnosis), soft_wrap=False)
    _plain(diagnosis.summary())


def _plain(line: str) -> None:
    stderr.print(visible(line), markup=False)


def _check_table(diagnosis: Diagnosis, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in diagnosis.checks:
        if check.state != "skipped" or verbose:
            style = _STYLES[check.state]
            table.add_row(f"[{style}]{MARKS[check.state]}[/]", safe(check.title), f"[dim]{safe(check.note)}[/]")
    return table


def _component_table(diagnosis: Diagnosis) -> Table:
    """Average and spread of each component over all answers, and its average for the telling ones."""
    probes = [name for name in _SHOWN_PROBES if any(name in stat.by_probe for stat in diagnosis.components)]
    table = Table("component", "avg", "std", "low", "high", *probes, box=None, pad_edge=False)
    for stat in diagnosis.components:
        numbers = [stat.mean, stat.std, stat.low, stat.high]
        by_probe = [f"{stat.by_probe[name]:.2f}" if name in stat.by_probe else "-" for name in probes]
        table.add_row(safe(shorten(stat.name, 40)), *(f"{number:.2f}" for number in numbers), *by_probe)
    return table
