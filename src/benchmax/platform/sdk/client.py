"""The platform from Python: files, runs, rollouts.

    trainer = TrainerClient(api_key=…)
    run_id = trainer.launch_training_run("simple", **asdict(uploaded))
    trainer.run(run_id).metrics_df()

`AsyncStorageClient`, `AsyncTrainerClient` and `AsyncRolloutClient` have the same methods as coroutines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from benchmax import config, retries
from benchmax.envs.datasets.readers import FORMATS
from benchmax.errors import UsageError
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.exceptions import JobLaunchError, TrainerError
from benchmax.platform.sdk.resource_client import ResourceMethods
from benchmax.platform.sdk.resource_client import run_path as _run
from benchmax.platform.sdk.rollout_client import AsyncRolloutClient, ExampleValidation, RolloutClient, ValidationResult
from benchmax.platform.sdk.transport import TRIES, AsyncTwin, Connection, failure

if TYPE_CHECKING:
    from benchmax.platform.sdk.playground import AsyncPlaygroundSession, PlaygroundSession
    from benchmax.platform.sdk.run import TrainingRun

__all__ = [
    "AsyncRolloutClient",
    "AsyncStorageClient",
    "AsyncTrainerClient",
    "ExampleValidation",
    "LaunchArgSpec",
    "RolloutClient",
    "StorageClient",
    "TrainerClient",
    "ValidationResult",
]

MIME_TYPES = {
    **{suffix: known.mime_type for suffix, known in FORMATS.items()},
    ".yaml": "text/yaml",
    ".yml": "text/yaml",
    ".pkl": "application/octet-stream",
    ".pickle": "application/octet-stream",
}
"""Files that can be uploaded."""


_FEED_TRIES = 6
_TABLE_COLUMNS = 120
"""Narrower, a table of the launch arguments cannot be read."""
_RUNS_PAGE = 1000
"""The most runs a server gives at once."""


class StorageClient(Connection):
    """Uploads files to the platform."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        upload_timeout: float = 1800.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, base_url, timeout, token_provider)
        self._upload_timeout = upload_timeout

    def upload_file(
        self, path: str, content: bytes, mime_type: str, *, expires_in_minutes: int | None = None
    ) -> dict[str, Any]:
        """Store bytes under `path`; gives `{uploadUrl, expiresAt, blobPath, willOverwrite}`."""
        return self._upload(path, mime_type, lambda: nullcontext(content), expires_in_minutes)

    def upload_local_file(
        self, path: str, file_path: str | os.PathLike[str], *, expires_in_minutes: int | None = None
    ) -> dict[str, Any]:
        """Store a file under `path`, streamed from disk; its ending tells what it is."""
        file = Path(file_path)
        mime_type = MIME_TYPES.get(file.suffix.lower())
        if mime_type is None:
            raise UsageError(f"{file.name} is of a kind the platform does not take. Use {', '.join(MIME_TYPES)}.")
        if not file.is_file():
            raise FileNotFoundError(f"There is no file {file}. Check the path.")
        return self._upload(path, mime_type, lambda: open(file, "rb"), expires_in_minutes)

    def _upload(self, path: str, mime_type: str, open_content: Any, minutes: int | None) -> dict[str, Any]:
        """Ask for an address and send the file there; an address works once, so each try has its own."""
        for left in reversed(range(TRIES)):
            permit: dict[str, Any] = self._get(
                "/v1/storage/upload-url", path=path, mimeType=mime_type, expiresInMinutes=minutes
            )
            try:
                self._put(permit["uploadUrl"], mime_type, open_content())
                break
            except TrainerError as error:
                if not left or error.status_code not in (None, 408, 502, 503, 504):
                    raise
        return permit

    def _put(self, url: str, mime_type: str, opened: AbstractContextManager[bytes | IO[bytes]]) -> None:
        headers = {"Content-Type": mime_type, "x-ms-blob-type": "BlockBlob"}
        with opened as content:
            if not isinstance(content, bytes):
                headers["Content-Length"] = str(os.fstat(content.fileno()).st_size)
            answer = self._send("PUT", url, content=content, headers=headers, timeout=self._upload_timeout)
        if not answer.is_success:
            raise failure(answer)


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


class TrainerClient(ResourceMethods):
    """Launches training runs and reads what they did."""

    def launch_training_run(
        self,
        training_run_type: str | None = None,
        env_cls_path: str | None = None,
        env_metadata_path: str | None = None,
        train_dataset_path: str | None = None,
        eval_dataset_path: str | None = None,
        name: str | None = None,
        launcher_args: Mapping[str, Any] | None = None,
        extra_secrets: Mapping[str, str] | None = None,
    ) -> str:
        """Launch a run on four uploads (`upload_training_run`); gives its id. The type may be left out.

        `extra_secrets` become environment variables of this run alone. On a platform of your own, the address of the
        run's page is printed on stderr.
        """
        run_id, warned = self.queue_run(
            training_run_type, env_cls_path, env_metadata_path, train_dataset_path, eval_dataset_path, name,
            launcher_args, extra_secrets,
        )  # fmt: skip
        for warning in warned:
            warnings.warn(warning, stacklevel=2)
        if self.base_url != config.PUBLISHED_URL:  # what published scripts print leads elsewhere
            print(f"The run is at {self.run(run_id).url}", file=sys.stderr)  # noqa: T201
        return run_id

    def queue_run(
        self,
        training_run_type: str | None = None,
        env_cls_path: str | None = None,
        env_metadata_path: str | None = None,
        train_dataset_path: str | None = None,
        eval_dataset_path: str | None = None,
        name: str | None = None,
        launcher_args: Mapping[str, Any] | None = None,
        extra_secrets: Mapping[str, str] | None = None,
    ) -> tuple[str, list[str]]:
        """Like `launch_training_run`, without a word: the run's id, and what the platform warns of."""
        paths = {
            "env_cls_path": env_cls_path,
            "env_metadata_path": env_metadata_path,
            "train_dataset_path": train_dataset_path,
            "eval_dataset_path": eval_dataset_path,
        }
        if missing := [key for key, path in paths.items() if not path]:
            raise UsageError(f"{', '.join(missing)} missing. Pass **asdict(upload_training_run(…)).")
        body: dict[str, Any] = {"name": name, "args": {**(launcher_args or {}), **paths}}
        if training_run_type is not None:
            body["type"] = training_run_type
        if extra_secrets:
            body["extraSecrets"] = dict(extra_secrets)
        try:
            launched = self._json("POST", "/v1/train/runs/launch", json=body)
        except TrainerError as error:
            if type(error) is not TrainerError:
                raise
            raise JobLaunchError(str(error), error.status_code) from None
        return str(launched["runId"]), list(launched.get("warnings") or ())

    def run(self, run_id: str) -> TrainingRun:
        """A handle on one run: its status, its metrics and rollouts as data frames."""
        from benchmax.platform.sdk.run import TrainingRun

        return TrainingRun(self, run_id)

    def list_launch_args(self) -> list[LaunchArgSpec]:
        """What a run can be asked for, with defaults and ranges."""
        found = self._get("/v1/train/launch-args")["args"]
        return [
            LaunchArgSpec(
                name=arg["name"],
                label=arg.get("label") or arg["name"],
                type=arg["type"],
                required=bool(arg.get("required")),
                description=arg.get("description") or "",
                default=arg.get("default"),
                min=arg.get("min"),
                max=arg.get("max"),
                warn_above=arg.get("warnAbove"),
                enum=arg.get("enum"),
            )
            for arg in found
        ]

    def print_launch_args(self) -> None:
        """Show the launch arguments: as a table where there is room for one, else two lines for each."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        rows = [_shown(spec) for spec in self.list_launch_args()]
        console = Console()
        if not console.is_jupyter and (not console.is_terminal or console.width < _TABLE_COLUMNS):
            for name, kind, default, bounds, meaning in rows:
                facts = f"{name}  {kind}" + (f" = {default}" if default else "") + (f"  ({bounds})" if bounds else "")
                print(f"{facts}\n    {meaning}")  # noqa: T201
            return
        table = Table(title=f"Launch arguments of {self.base_url}")
        for column in ("argument", "type", "default", "range", "meaning"):
            table.add_column(column, no_wrap=column == "argument", overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)

    # Runs

    def list_runs(self, *, include_config: bool = False) -> list[dict[str, Any]]:
        """Your runs, all of them, newest first."""
        found: dict[str, dict[str, Any]] = {}
        while True:
            asked, known = include_config or None, len(found)
            page = _rows(self._get("/v1/train/runs", includeConfig=asked, offset=known or None), "runs")
            found |= {run["id"]: run for run in page}  # one that was launched meanwhile moves others to the next page
            if len(page) < _RUNS_PAGE or len(found) == known:
                return list(found.values())

    def get_run(self, run_id: str, *, include_config: bool = False) -> dict[str, Any]:
        return _object(self._get(_run(run_id), includeConfig=include_config or None))

    def get_run_details(self, run_id: str) -> dict[str, Any]:
        """The run with `latestStep`, `modes` and `errorCount`."""
        return _object(self._get(_run(run_id, "details")))

    def get_run_events(self, run_id: str) -> list[dict[str, Any]]:
        """What happened, oldest first."""
        return _rows(self._get(_run(run_id, "events")), "events")

    def get_run_scalars(self, run_id: str, mode: str) -> dict[str, list[dict[str, Any]]]:
        """`{name: [{step, value}]}`; `{}` for a mode there is not."""
        return _object(self._get(_run(run_id, "scalars"), mode=mode))

    def get_environment_logs(self, run_id: str, *, rollout_id: str | None = None) -> list[dict[str, Any]]:
        """Everything the environment logged; `iter_environment_logs` gives it line by line."""
        return list(self.iter_environment_logs(run_id, rollout_id=rollout_id))

    def cancel_run(self, run_id: str) -> dict[str, Any]:
        return _object(self._json("POST", _run(run_id, "cancel")))

    def resume_run(self, run_id: str) -> dict[str, Any]:
        """Queue a run that was cut off again."""
        return _object(self._json("POST", _run(run_id, "resume")))

    def delete_run(self, run_id: str) -> dict[str, Any]:
        return _object(self._json("DELETE", _run(run_id)))

    def list_checkpoints(self, run_id: str) -> list[dict[str, Any]]:
        return _rows(self._get(_run(run_id, "checkpoints")), "checkpoints")

    def list_external_evals(self, run_id: str) -> list[dict[str, Any]]:
        """Evaluations of the run's models and of others on its eval rows."""
        return _rows(self._get(_run(run_id, "external-eval")), "evals")

    def start_external_eval(self, run_id: str, model: str, *, name: str = "", **options: Any) -> dict[str, Any]:
        """Queue an evaluation of `base`, `checkpoint:<name>` or `endpoint:<id>`; options are `rows` and `samples`."""
        body = {"model": model, "name": name, **options}
        return _object(self._json("POST", _run(run_id, "external-eval"), json=body))

    def get_comparison(self, run_id: str, external_eval_id: str, *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """`{modelGroups, compGroups}`: the run's latest eval beside another model's."""
        return _object(
            self._get(_run(run_id, "rollouts/comparison"), externalEvalId=external_eval_id, page=page, limit=limit)
        )

    def stream_run(self, run_id: str, last_event_id: int = 0) -> Iterator[dict[str, Any]]:
        """Events, points and rollouts as they come, until the run ends; reconnects where it was."""
        lost = 0
        while lost < _FEED_TRIES:
            time.sleep(retries.pause(lost, 0.5, 8.0) if lost else 0)
            for event in self._feed(run_id, last_event_id):
                if event is None:
                    return
                last_event_id, lost = event["id"], 0
                yield event
            lost += 1
        raise TrainerError("The live feed broke off, and again when it was asked for anew. Try it later.")

    def _feed(self, run_id: str, last_event_id: int) -> Iterator[dict[str, Any] | None]:
        """Events of one connection, None when the run has ended; it stops when the connection is lost."""
        import httpx2

        headers = {"Authorization": f"Bearer {self._token()}", "Last-Event-ID": str(last_event_id)}
        try:
            with self._http.stream(
                "GET", self.base_url + _run(run_id, "stream"), headers=headers, timeout=60.0
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    raise failure(answer)
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        event = json.loads(line[6:])
                        yield None if event.get("type") == "end" else event
        except httpx2.TransportError:
            return

    def playground(self, run_id: str, **options: Any) -> PlaygroundSession:
        """Open a chat with one of the run's checkpoints; see `TrainingRun.playground`."""
        from benchmax.platform.sdk.playground import PlaygroundSession

        return PlaygroundSession(self, run_id, **options)

    # Rollouts

    def get_rollout_summary(
        self, run_id: str, *, mode: str = "eval", page: int = 1, limit: int = 50, external_eval_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Examples with their mean reward at each step."""
        found = self._get(
            _run(run_id, "rollouts/summary"), mode=mode, page=page, limit=limit, externalEvalId=external_eval_id
        )
        return _rows(found, "data", "items", "results", "rollouts", "groups")

    def get_rollout_heatmap(
        self, run_id: str, prompt_message_id: str, *, mode: str = "eval", external_eval_id: str | None = None
    ) -> list[dict[str, Any]]:
        """`[{id, step, totalReward}]` of one example."""
        found = self._get(
            _run(run_id, "rollouts/heatmap"),
            promptMessageId=prompt_message_id,
            mode=mode,
            externalEvalId=external_eval_id,
        )
        return _rows(found, "data", "items", "results")

    def get_rollout_details(self, run_id: str, rollout_id: str) -> dict[str, Any]:
        """One rollout in full."""
        return _object(self._get(_run(run_id, f"rollouts/{quote(rollout_id, safe='')}/details")))

    def get_rollout_mode_average(
        self, run_id: str, *, mode: str = "eval", external_eval_id: str | None = None
    ) -> dict[str, Any]:
        return _object(self._get(_run(run_id, "rollouts/mode-average"), mode=mode, externalEvalId=external_eval_id))

    def get_rollout_component_averages(self, run_id: str, *, mode: str = "eval") -> dict[str, Any] | None:
        """The mean of each component at the latest step; None when there is none."""
        found: dict[str, Any] | None = self._get(_run(run_id, "rollouts/component-averages"), mode=mode)
        return found

    def list_rollouts(
        self, run_id: str, *, mode: str = "eval", page: int = 1, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Index rows of rollouts, newest step first."""
        return _rows(self._get(_run(run_id, "rollouts"), mode=mode, page=page, limit=limit), "data")


class AsyncStorageClient(AsyncTwin):
    _kind = StorageClient


class AsyncTrainerClient(AsyncTwin):
    _kind = TrainerClient

    async def playground(self, run_id: str, **options: Any) -> AsyncPlaygroundSession:
        """Open a chat with one of the run's checkpoints."""
        from benchmax.platform.sdk.playground import AsyncPlaygroundSession

        sync = self.sync
        assert isinstance(sync, TrainerClient)
        return AsyncPlaygroundSession(await asyncio.to_thread(sync.playground, run_id, **options))


def _rows(found: Any, *envelopes: str) -> list[dict[str, Any]]:
    """The list, or the list inside an envelope."""
    for name in envelopes:
        if isinstance(found, dict) and isinstance(found.get(name), list):
            found = found[name]
    if not isinstance(found, list):
        raise TrainerError("The platform's answer is not a list. Check that client and server fit together.")
    return found


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TrainerError("The platform's answer is not an object. Check that client and server fit together.")
    return found


def _shown(spec: LaunchArgSpec) -> tuple[str, str, str, str, str]:
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
