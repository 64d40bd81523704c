"""Launching runs, and the launch arguments, also as a table for people."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from benchmax import config
from benchmax.envs.datasets.readers import FORMATS
from benchmax.errors import UsageError
from benchmax.platform.sdk.calls import Request, Row, as_object, get, post_for, run_path
from benchmax.platform.sdk.exceptions import JobLaunchError, TrainerError
from benchmax.platform.sdk.requests.runs import page_url

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

_LAUNCH = "/v1/train/runs/launch"
_TABLE_COLUMNS = 120
"""A narrower terminal makes the table of launch arguments unreadable."""


@dataclass(frozen=True, slots=True)
class LaunchArgSpec:
    """One launch argument, as the platform describes it."""

    name: str
    label: str
    type: str
    required: bool
    description: str
    default: Any = None
    min: float | None = None
    max: float | None = None
    warn_above: float | None = None
    enum: list[str] | None = None


def list_launch_args() -> Request[list[LaunchArgSpec]]:
    """The launch arguments, with defaults and ranges."""
    return get("/v1/train/launch-args", lambda found: [_spec(arg) for arg in found["args"]])


def _spec(arg: Row) -> LaunchArgSpec:
    texts = {"label": arg.get("label") or arg["name"], "description": arg.get("description") or ""}
    known: Row = {name: arg.get(name) for name in ("name", "type", "default", "min", "max", "enum")}
    return LaunchArgSpec(**known, **texts, required=bool(arg.get("required")), warn_above=arg.get("warnAbove"))


async def print_launch_args(exchange: Exchange) -> None:
    """Print the launch arguments: as a table where there is room for one, else two lines for each."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = [_cells(spec) for spec in await exchange.ask(list_launch_args())]
    console = Console()
    if not console.is_jupyter and (not console.is_terminal or console.width < _TABLE_COLUMNS):
        for name, kind, default, bounds, meaning in rows:
            facts = f"{name}  {kind}" + (f" = {default}" if default else "") + (f"  ({bounds})" if bounds else "")
            print(f"{facts}\n    {meaning}")  # noqa: T201
        return
    table = Table(title=f"Launch arguments of {exchange.base_url}")
    for column in ("argument", "type", "default", "range", "meaning"):
        table.add_column(column, no_wrap=column == "argument", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _cells(spec: LaunchArgSpec) -> tuple[str, str, str, str, str]:
    """Name, type, default, range and meaning of an argument."""
    default = "" if spec.default is None else json.dumps(spec.default)
    bounds = ", ".join(spec.enum) if spec.enum else _range(spec)
    return spec.name, spec.type, default, bounds, spec.description


def _range(spec: LaunchArgSpec) -> str:
    if spec.min is None and spec.max is None:
        return ""
    return f"{_number(spec.min)} – {_number(spec.max)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{int(value):,}" if value == int(value) else f"{value:g}"


async def launch_training_run(
    exchange: Exchange,
    training_run_type: str | None = None,
    env_cls_path: str | None = None,
    env_metadata_path: str | None = None,
    train_dataset_path: str | None = None,
    eval_dataset_path: str | None = None,
    name: str | None = None,
    launcher_args: Mapping[str, Any] | None = None,
    extra_secrets: Mapping[str, str] | None = None,
) -> str:
    """Launch a run on four uploads (`upload_training_run`); returns its id. The type may be left out.

    `extra_secrets` become environment variables of this run alone. On a platform of your own, the address of the
    run's page is printed on stderr.
    """
    run_id, warned = await queue_run(
        exchange, training_run_type, env_cls_path, env_metadata_path, train_dataset_path, eval_dataset_path, name,
        launcher_args, extra_secrets,
    )  # fmt: skip
    for warning in warned:
        warnings.warn(warning, stacklevel=_depth_of_the_sdk())
    if exchange.base_url != config.PUBLISHED_URL:  # whose scripts print it themselves
        print(f"The run is at {page_url(exchange.base_url, run_id)}", file=sys.stderr)  # noqa: T201
    return run_id


def _depth_of_the_sdk() -> int:
    """How many frames up the SDK was called; the number differs between a blocking and an async client."""
    depth, frame = 0, sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"].startswith("benchmax.platform.sdk."):
        depth, frame = depth + 1, frame.f_back
    return depth + 1


async def queue_run(
    exchange: Exchange,
    training_run_type: str | None = None,
    env_cls_path: str | None = None,
    env_metadata_path: str | None = None,
    train_dataset_path: str | None = None,
    eval_dataset_path: str | None = None,
    name: str | None = None,
    launcher_args: Mapping[str, Any] | None = None,
    extra_secrets: Mapping[str, str] | None = None,
) -> tuple[str, list[str]]:
    """Like `launch_training_run`, but prints nothing: returns the run's id and the platform's warnings."""
    paths = {
        "env_cls_path": env_cls_path,
        "env_metadata_path": env_metadata_path,
        "train_dataset_path": train_dataset_path,
        "eval_dataset_path": eval_dataset_path,
    }
    if missing := [key for key, path in paths.items() if not path]:
        raise UsageError(f"{', '.join(missing)} missing. Pass **asdict(upload_training_run(…)).")
    body: Row = {"name": name, "args": {**(launcher_args or {}), **paths}}
    if training_run_type is not None:
        body["type"] = training_run_type
    if extra_secrets:
        body["extraSecrets"] = dict(extra_secrets)
    try:
        return await exchange.ask(Request("POST", _LAUNCH, _launched, json=body))
    except TrainerError as error:
        if type(error) is not TrainerError:
            raise
        raise JobLaunchError(str(error), error.status_code) from None


def _launched(found: Any) -> tuple[str, list[str]]:
    launched = as_object(found)
    return str(launched["runId"]), list(launched.get("warnings") or ())


def launch_environment(
    environment: str,
    dataset_path: str | None = None,
    *,
    eval_share: float | None = None,
    name: str | None = None,
    launcher_args: Mapping[str, Any] | None = None,
) -> Request[str]:
    """Launch a run on an environment of `list_environments` and one dataset, which is split; returns the run's id."""
    named = {"environment": environment, "dataset_path": dataset_path, "eval_share": eval_share}
    args = {**(launcher_args or {}), **{key: value for key, value in named.items() if value is not None}}
    return post_for("runId", _LAUNCH, {"name": name, "args": args})


def launch_sft_run(
    dataset_path: str,
    *,
    model: str | None = None,
    name: str | None = None,
    launcher_args: Mapping[str, Any] | None = None,
    eval_rows: int = 0,
) -> Request[str]:
    """Launch a supervised run on uploaded chats, one file or a folder of two; returns the run's id."""
    suffix = PurePosixPath(dataset_path).suffix.lower()
    body = {
        "name": name,
        "dataset": {"path": dataset_path} | ({"format": suffix.removeprefix(".")} if suffix in FORMATS else {}),
        "model": model,
        "args": dict(launcher_args or {}),
        "eval": {"rows": eval_rows},
    }
    return post_for("runId", "/v1/train/runs/sft", body)


def fork_run(
    run_id: str, checkpoint: str = "best", *, name: str | None = None, launcher_args: Mapping[str, Any] | None = None
) -> Request[str]:
    """Launch a run that begins with a checkpoint's weights; returns its id. `launcher_args` change arguments."""
    body = {"checkpoint": checkpoint, "name": name, "args": dict(launcher_args or {})}
    return post_for("runId", run_path(run_id, "fork"), body)
