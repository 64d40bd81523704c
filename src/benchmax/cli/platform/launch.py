"""`benchmax launch`: check an environment, upload it with its rows, and start a training run on the platform."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, print_json, print_result, safe, stderr, visible
from benchmax.cli.platform.connection import Settings, platform
from benchmax.cli.project import LAUNCH_KEYS, VALIDATE_KEYS, ProjectOptions, project_command, project_config, rereadable
from benchmax.doctor import examine_apart
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.composed.parts import part_of_row
from benchmax.envs.datasets.readers import Source, read_rows, readable_rows, source_name
from benchmax.envs.datasets.split import hold_out
from benchmax.envs.datasets.usable_rows import check_run_rows
from benchmax.envs.loading import json_or_text
from benchmax.errors import ConfigError, DatasetError
from benchmax.files.atomic import write_json
from benchmax.limits import MIN_TRAIN_ROWS
from benchmax.platform.sdk.client import TrainerClient
from benchmax.platform.sdk.requests.launches import LaunchArgSpec
from benchmax.platform.sdk.upload import UploadedTrainingRun, upload_training_run
from benchmax.platform.validation import problem_lines

MANIFESTS = Path(".castform", "runs")


@dataclass(frozen=True, slots=True)
class Project:
    """What is launched."""

    env_class: type[BaseEnv]
    arguments: dict[str, Any]
    train: Source
    held_out: Source
    folder: Path
    name: str
    packages: list[str]


@project_command
def launch(
    options: ProjectOptions,
    name: Annotated[str | None, typer.Option(help="The run's name; the class's when not given.")] = None,
    setting: Settings = None,
    list_args: Annotated[bool, typer.Option("--list-args", help="Show the launch arguments and exit.")] = False,
    skip_validate: Annotated[bool, typer.Option("--skip-validate", help="Do not examine it first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Examine an environment, upload it with its rows, and start a training run."""
    if list_args:
        with platform() as client:
            if json:
                print_json([asdict(spec) for spec in client.list_launch_args()])
            else:
                client.print_launch_args()
        return
    # What an environment prints is not data.
    with redirect_stdout(sys.stderr):
        cls = options.load_class()
        config = project_config(cls, "LAUNCH_CONFIG", LAUNCH_KEYS)
        examined = project_config(cls, "VALIDATE_CONFIG", VALIDATE_KEYS)
        arguments = options.arguments(cls, examined, config)
        rows, held_out = options.rows(cls)
        rows, held_out = rereadable(rows), None if held_out is None else rereadable(held_out)
        names = source_name(rows, "the training rows"), source_name(held_out or (), "the held-out rows")
        check_run_rows(rows, held_out or (), cls, names=names)
        rows, held_out = (rows, held_out) if held_out is not None else set_aside(rows, composed=bool(cls.composed_of))
        name, pip = name or config.get("name") or cls.__name__, options.pip or list(config.get("pip", []))
        project = Project(cls, arguments, rows, held_out, options.directory, name, pip)
    with platform() as client:
        settings, warned = read_settings(client.list_launch_args(), setting or (), config.get("args", {}))
        if not skip_validate:
            with redirect_stdout(sys.stderr):
                _examine(project)
        _confirm(project, client, settings, yes)
        launched = _start(project, client, settings)
    _print_launched(launched, json, known=warned)


def read_settings(
    specs: Sequence[LaunchArgSpec], pairs: Iterable[str], project: Mapping[str, Any] = {}
) -> tuple[dict[str, Any], list[str]]:
    """The project's launch arguments and KEY=VALUE pairs, which win, and the warnings about them, which are printed.

    Every mistake in them is reported at once.
    """
    from benchmax.platform.wire.launches import LaunchArg, check_launch_args

    kinds = {spec.name: spec.type for spec in specs}
    given = dict(project)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {pair!r} is not KEY=VALUE. Write it like --set learning_rate=1e-4.")
        given[key] = value if kinds.get(key) == "string" else json_or_text(value)
    _, warned = check_launch_args([LaunchArg.model_validate(asdict(spec)) for spec in specs], given)
    for warning in warned:
        stderr.print(f"[yellow]{safe(warning)}[/]")
    return given, warned


def set_aside(source: Source, *, composed: bool = False) -> tuple[Source, Source]:
    """A fifth of the rows set aside for evaluation, evenly, as long as enough are left to train on."""
    rows = [row.data for row in readable_rows(source)]
    train, aside = hold_out(rows, part=part_of_row if composed else lambda row: "")
    if not aside:
        raise DatasetError(
            f"{len(rows)} rows are too few to set some aside for evaluation: {MIN_TRAIN_ROWS} are needed to train. "
            "Add rows, or give held-out ones with --eval FILE."
        )
    stderr.print(f"No held-out rows were given: {len(aside)} of {len(rows)} rows are set aside for evaluation.")
    return train, aside


def _examine(project: Project) -> None:
    stderr.print(f"Examining {safe(project.env_class.__name__)}.")
    diagnosis = examine_apart(project.env_class, project.arguments, rows=project.train, eval_rows=project.held_out)
    for line in [*problem_lines(diagnosis), diagnosis.summary()]:
        stderr.print(visible(line), markup=False)
    if not diagnosis.ok:
        stderr.print("Nothing was uploaded. Put it right, or launch with --skip-validate.")
        raise typer.Exit(FAILED)


def _confirm(project: Project, client: TrainerClient, settings: dict[str, Any], yes: bool) -> None:
    chosen = ", ".join(f"{name}={value}" for name, value in settings.items()) or "the platform's defaults"
    stderr.print(f"Launching {safe(project.name)} on {safe(client.base_url)} with {safe(chosen)}.")
    if not yes and sys.stdin.isatty():
        typer.confirm("Go on?", default=True, abort=True, err=True)


def _start(project: Project, client: TrainerClient, settings: dict[str, Any]) -> dict[str, Any]:
    with redirect_stdout(sys.stderr):  # what its dataset_preprocess prints
        uploaded = upload_training_run(
            env_class=project.env_class,
            train_dataset=project.train,
            eval_dataset=project.held_out,
            run_name=project.name,
            base_url=client.base_url,
            constructor_args=project.arguments,
            pip_dependencies=project.packages,
        )
    manifest = _manifest(project, client, uploaded, settings)
    run_id, warnings = client.queue_run(**asdict(uploaded), name=project.name, launcher_args=settings)
    path = project.folder / MANIFESTS / f"{Path(run_id).name}.json"
    noted: str | None = str(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, manifest | {"runId": run_id})
    except OSError as error:  # the run goes on without it, and its id must be printed
        noted = None
        warnings.append(f"No note of this run could be left in {project.folder / MANIFESTS}: {error.strerror}.")
    return {"runId": run_id, "url": client.run(run_id).url, "manifest": noted, "warnings": warnings}


def _manifest(
    project: Project, client: TrainerClient, uploaded: UploadedTrainingRun, settings: dict[str, Any]
) -> dict[str, Any]:
    """What this run was made of, so that it can be found and made again."""

    def count(source: Source) -> int:
        return sum(1 for _ in read_rows(source))

    files = {}
    for part, path in asdict(uploaded).items():
        stored = next((each for each in client.list_files(path) if each["path"] == path), {})
        files[part] = {"path": path, "sha256": stored.get("sha256"), "bytes": stored.get("bytes")}
    return {
        "name": project.name,
        "platform": client.base_url,
        "launchedAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": f"{project.env_class.__module__}.{project.env_class.__qualname__}",
        "rows": {"train": count(project.train), "eval": count(project.held_out)},
        "launcherArgs": settings,
        "files": files,
        "gitHead": _git_head(project.folder),
    }


def _git_head(folder: Path) -> str | None:
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _print_launched(launched: dict[str, Any], json: bool, known: Sequence[str]) -> None:
    for warning in (each for each in launched["warnings"] if each not in known):
        stderr.print(f"[yellow]{safe(warning)}[/]")
    stderr.print(f"Launched: {safe(launched['url'])}")
    stderr.print(f"Follow it with: benchmax runs watch {safe(launched['runId'])}")
    print_result(launched, json, launched["runId"])
