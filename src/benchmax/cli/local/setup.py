"""`benchmax setup` and `guide`: a project that runs at once, with instructions for people and for coding agents."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmax.cli.output import Json, print_json, safe, stderr
from benchmax.cli.project import HELD_OUT, TRAIN
from benchmax.errors import UsageError

Agent = Literal["claude", "codex", "both"]
TEMPLATES = ("generic",)
SKILLS = ("design-environment", "generate-data", "verify-environment", "launch-run", "view-progress")
_HOMES: dict[Agent, tuple[str, ...]] = {"claude": (".claude",), "codex": (".agents",), "both": (".claude", ".agents")}
"""Where each coding agent looks for its skills."""


def setup(
    directory: Annotated[
        Path, typer.Option("--dir", help="The project's folder; created if it does not exist.")
    ] = Path(),
    agent: Annotated[Agent, typer.Option(help="Which coding agent gets the skills.")] = "both",
    template: Annotated[str, typer.Option(help=f"What main.py begins as: {', '.join(TEMPLATES)}.")] = TEMPLATES[0],
    no_template: Annotated[
        bool, typer.Option("--no-template", help="Only instructions for agents; no main.py.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    skip_login: Annotated[
        bool, typer.Option("--skip-login", help="Accepted; setup never signs in, `benchmax login` does.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Name every file.")] = False,
    json: Json = False,
) -> None:
    """Create a project: an environment that runs at once, rows, and instructions for coding agents."""
    if template not in TEMPLATES:
        raise UsageError(f"There is no template {template!r}. Use one of these: {', '.join(TEMPLATES)}.")
    project = {"main.py": "main.py.txt", TRAIN: TRAIN, HELD_OUT: HELD_OUT}
    planned = dict(_agent_files(agent)) | {name: _text(source) for name, source in project.items() if not no_template}
    main = directory / "main.py"
    if main.exists() and not force and not no_template:
        raise UsageError(f"{main} already exists. Use --no-template to keep it, or --force to overwrite it.")
    written, kept = _write(directory, planned, force)
    for name in written if verbose else ():
        stderr.print(f"  wrote {safe(name)}")
    for name in kept:
        stderr.print(f"  left {safe(name)} as it is")
    stderr.print(f"The project is in {safe(directory.resolve())}: {len(written)} files written.")
    stderr.print(f"Next: {safe(_next_steps(directory, no_template))}")
    if json:
        print_json({"directory": str(directory.resolve()), "written": written, "kept": kept})


def _next_steps(directory: Path, no_template: bool) -> str:
    here = directory.resolve() == Path.cwd()
    steps = [*([] if here else [f"cd {shlex.quote(str(directory))}"]), *([] if no_template else ["python main.py"])]
    return f"{' && '.join(steps)}, then read GETTING_STARTED.md." if steps else "read GETTING_STARTED.md."


def guide() -> None:
    """Show the way from an empty folder to a trained model."""
    typer.echo(_text("GETTING_STARTED.md"))


def help_(context: typer.Context) -> None:
    """List the commands."""
    assert context.parent is not None
    typer.echo(context.parent.get_help())


def _agent_files(agent: Agent) -> Iterator[tuple[str, str]]:
    yield "GETTING_STARTED.md", _text("GETTING_STARTED.md")
    yield "AGENTS.md", _text("AGENTS.md")
    if agent != "codex":
        yield "CLAUDE.md", "Read AGENTS.md.\n"
    for home in _HOMES[agent]:
        for skill in SKILLS:
            yield f"{home}/skills/{skill}/SKILL.md", _text("skills", f"{skill}.md")


def _write(directory: Path, planned: dict[str, str], force: bool) -> tuple[list[str], list[str]]:
    """Names written, and names that were there and stay as they are."""
    written, kept = [], []
    for name, text in planned.items():
        path = directory / name
        if path.exists() and not force:
            kept.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        written.append(name)
    return written, kept


def _text(*path: str) -> str:
    return files("benchmax.cli").joinpath("scaffold", *path).read_text("utf-8")
