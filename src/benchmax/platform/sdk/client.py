"""The platform from Python: runs, rollouts, environments, datasets, users.

    trainer = TrainerClient(api_key=…)
    run_id = trainer.launch_training_run("simple", **asdict(uploaded))
    trainer.run(run_id).metrics_df()

`AsyncTrainerClient` has the same methods as coroutines, and its iterators are async. Both are tables over the same
descriptions in `requests`; only what streams is written for each.
"""

from __future__ import annotations

import asyncio
import sys
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from benchmax import config, retries
from benchmax.platform.sdk.calls import EventStream, Row, async_method, method, run_path
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.launch_args_table import print_launch_args
from benchmax.platform.sdk.requests import accounts, checkpoints, launches, resources, rollouts, runs
from benchmax.platform.sdk.requests.launches import LaunchArgSpec
from benchmax.platform.sdk.rollout_client import AsyncRolloutClient, ExampleValidation, RolloutClient, ValidationResult
from benchmax.platform.sdk.storage_client import AsyncStorageClient, StorageClient
from benchmax.platform.sdk.transport import AsyncConnection, Connection

if TYPE_CHECKING:
    from benchmax.platform.sdk.playground import AsyncPlaygroundSession, PlaygroundSession
    from benchmax.platform.sdk.run import AsyncTrainingRun, TrainingRun

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

_FEED_TRIES = 6
_FEED_SECONDS = 60.0


class TrainerClient(Connection):
    """Launches training runs and reads what they did."""

    list_launch_args = method(launches.list_launch_args)
    queue_run = method(launches.queue_run)
    launch_environment = method(launches.launch_environment)
    launch_sft_run = method(launches.launch_sft_run)
    fork_run = method(launches.fork_run)

    list_runs = method(runs.list_runs)
    get_run = method(runs.get_run)
    get_run_details = method(runs.get_run_details)
    get_run_events = method(runs.get_run_events)
    get_run_scalars = method(runs.get_run_scalars)
    get_run_config = method(runs.get_run_config)
    get_run_system = method(runs.get_run_system)
    get_run_logs = method(runs.get_run_logs)
    get_environment_logs = method(runs.get_environment_logs)
    change_run = method(runs.change_run)
    cancel_run = method(runs.cancel_run)
    resume_run = method(runs.resume_run)
    delete_run = method(runs.delete_run)
    list_external_evals = method(runs.list_external_evals)
    start_external_eval = method(runs.start_external_eval)
    rescore_run = method(runs.rescore_run)
    get_comparison = method(runs.get_comparison)
    get_comparison_summary = method(runs.get_comparison_summary)

    get_rollout_summary = method(rollouts.get_rollout_summary)
    get_rollout_heatmap = method(rollouts.get_rollout_heatmap)
    get_rollout_details = method(rollouts.get_rollout_details)
    get_rollout_mode_average = method(rollouts.get_rollout_mode_average)
    get_rollout_component_averages = method(rollouts.get_rollout_component_averages)
    list_rollouts = method(rollouts.list_rollouts)

    list_checkpoints = method(checkpoints.list_checkpoints)
    download_checkpoint = method(checkpoints.download_checkpoint)

    list_environments = method(resources.list_environments)
    get_environment = method(resources.get_environment)
    examine_environment = method(resources.examine_environment)
    list_datasets = method(resources.list_datasets)
    create_dataset = method(resources.create_dataset)
    add_dataset_row = method(resources.add_dataset_row)
    delete_dataset = method(resources.delete_dataset)

    list_users = method(accounts.list_users)
    create_user = method(accounts.create_user)
    delete_user = method(accounts.delete_user)
    change_password = method(accounts.change_password)
    sign_out_everywhere = method(accounts.sign_out_everywhere)
    list_endpoints = method(accounts.list_endpoints)
    create_endpoint = method(accounts.create_endpoint)
    delete_endpoint = method(accounts.delete_endpoint)
    list_secrets = method(accounts.list_secrets)
    set_secret = method(accounts.set_secret)
    delete_secret = method(accounts.delete_secret)
    list_webhooks = method(accounts.list_webhooks)
    create_webhook = method(accounts.create_webhook)
    delete_webhook = method(accounts.delete_webhook)
    test_webhook = method(accounts.test_webhook)
    list_webhook_deliveries = method(accounts.list_webhook_deliveries)

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
        """Launch a run on four uploads (`upload_training_run`); returns its id. The type may be left out.

        `extra_secrets` become environment variables of this run alone. On a platform of your own, the address of the
        run's page is printed on stderr.
        """
        run_id, warned = self.queue_run(
            training_run_type, env_cls_path, env_metadata_path, train_dataset_path, eval_dataset_path, name,
            launcher_args, extra_secrets,
        )  # fmt: skip
        for warning in warned:
            warnings.warn(warning, stacklevel=2)
        _announce(self.base_url, run_id)
        return run_id

    def print_launch_args(self) -> None:
        """Print the launch arguments: as a table where there is room for one, else two lines for each."""
        print_launch_args(self.list_launch_args(), self.base_url)

    def run(self, run_id: str) -> TrainingRun:
        """A handle on one run: its status, its metrics and rollouts as data frames."""
        from benchmax.platform.sdk.run import TrainingRun

        return TrainingRun(self, run_id)

    def playground(self, run_id: str, **options: Any) -> PlaygroundSession:
        """Open a chat with one of the run's checkpoints; see `TrainingRun.playground`."""
        from benchmax.platform.sdk.playground import PlaygroundSession

        return PlaygroundSession(self, run_id, **options)

    def iter_run_logs(self, run_id: str, process: str = "child", *, level: str | None = None) -> Iterator[Row]:
        """Every line one process has written so far."""
        after, more = "0", True
        while more:
            page = self.get_run_logs(run_id, process, level=level, after=after)
            yield from page["lines"]
            after, more = page["nextCursor"], page["more"]

    def iter_environment_logs(self, run_id: str, *, rollout_id: str | None = None) -> Iterator[Row]:
        """Everything the environment logged, oldest first."""
        cursor: str | None = "0"
        while cursor is not None:
            page = self._run(runs.environment_logs_page(run_id, rollout_id, cursor))
            yield from page["logs"]
            cursor = page.get("nextCursor")

    def stream_run(self, run_id: str, last_event_id: int = 0) -> Iterator[Row]:
        """Events, metrics and rollouts as they come, until the run ends; reconnects where it was."""
        feed = _Feed(run_id, last_event_id)
        while True:
            try:
                for event in self._events(feed.stream()):
                    if feed.is_end(event):
                        return
                    yield event
            except _FeedLost:
                pass
            time.sleep(feed.pause())


class AsyncTrainerClient(AsyncConnection):
    """`TrainerClient` for async code."""

    list_launch_args = async_method(launches.list_launch_args)
    queue_run = async_method(launches.queue_run)
    launch_environment = async_method(launches.launch_environment)
    launch_sft_run = async_method(launches.launch_sft_run)
    fork_run = async_method(launches.fork_run)

    list_runs = async_method(runs.list_runs)
    get_run = async_method(runs.get_run)
    get_run_details = async_method(runs.get_run_details)
    get_run_events = async_method(runs.get_run_events)
    get_run_scalars = async_method(runs.get_run_scalars)
    get_run_config = async_method(runs.get_run_config)
    get_run_system = async_method(runs.get_run_system)
    get_run_logs = async_method(runs.get_run_logs)
    get_environment_logs = async_method(runs.get_environment_logs)
    change_run = async_method(runs.change_run)
    cancel_run = async_method(runs.cancel_run)
    resume_run = async_method(runs.resume_run)
    delete_run = async_method(runs.delete_run)
    list_external_evals = async_method(runs.list_external_evals)
    start_external_eval = async_method(runs.start_external_eval)
    rescore_run = async_method(runs.rescore_run)
    get_comparison = async_method(runs.get_comparison)
    get_comparison_summary = async_method(runs.get_comparison_summary)

    get_rollout_summary = async_method(rollouts.get_rollout_summary)
    get_rollout_heatmap = async_method(rollouts.get_rollout_heatmap)
    get_rollout_details = async_method(rollouts.get_rollout_details)
    get_rollout_mode_average = async_method(rollouts.get_rollout_mode_average)
    get_rollout_component_averages = async_method(rollouts.get_rollout_component_averages)
    list_rollouts = async_method(rollouts.list_rollouts)

    list_checkpoints = async_method(checkpoints.list_checkpoints)
    download_checkpoint = async_method(checkpoints.download_checkpoint)

    list_environments = async_method(resources.list_environments)
    get_environment = async_method(resources.get_environment)
    examine_environment = async_method(resources.examine_environment)
    list_datasets = async_method(resources.list_datasets)
    create_dataset = async_method(resources.create_dataset)
    add_dataset_row = async_method(resources.add_dataset_row)
    delete_dataset = async_method(resources.delete_dataset)

    list_users = async_method(accounts.list_users)
    create_user = async_method(accounts.create_user)
    delete_user = async_method(accounts.delete_user)
    change_password = async_method(accounts.change_password)
    sign_out_everywhere = async_method(accounts.sign_out_everywhere)
    list_endpoints = async_method(accounts.list_endpoints)
    create_endpoint = async_method(accounts.create_endpoint)
    delete_endpoint = async_method(accounts.delete_endpoint)
    list_secrets = async_method(accounts.list_secrets)
    set_secret = async_method(accounts.set_secret)
    delete_secret = async_method(accounts.delete_secret)
    list_webhooks = async_method(accounts.list_webhooks)
    create_webhook = async_method(accounts.create_webhook)
    delete_webhook = async_method(accounts.delete_webhook)
    test_webhook = async_method(accounts.test_webhook)
    list_webhook_deliveries = async_method(accounts.list_webhook_deliveries)

    async def launch_training_run(
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
        """Launch a run on four uploads (`upload_training_run`); returns its id. The type may be left out.

        `extra_secrets` become environment variables of this run alone. On a platform of your own, the address of the
        run's page is printed on stderr.
        """
        run_id, warned = await self.queue_run(
            training_run_type, env_cls_path, env_metadata_path, train_dataset_path, eval_dataset_path, name,
            launcher_args, extra_secrets,
        )  # fmt: skip
        for warning in warned:
            warnings.warn(warning, stacklevel=2)
        _announce(self.base_url, run_id)
        return run_id

    async def print_launch_args(self) -> None:
        """Print the launch arguments: as a table where there is room for one, else two lines for each."""
        print_launch_args(await self.list_launch_args(), self.base_url)

    async def run(self, run_id: str) -> AsyncTrainingRun:
        """A handle on one run: its status, its metrics and rollouts as data frames."""
        from benchmax.platform.sdk.run import AsyncTrainingRun

        return AsyncTrainingRun(self, run_id)

    async def playground(self, run_id: str, **options: Any) -> AsyncPlaygroundSession:
        """Open a chat with one of the run's checkpoints; see `TrainingRun.playground`."""
        from benchmax.platform.sdk.playground import AsyncPlaygroundSession

        return await AsyncPlaygroundSession.open(self, run_id, **options)

    async def iter_run_logs(
        self, run_id: str, process: str = "child", *, level: str | None = None
    ) -> AsyncIterator[Row]:
        """Every line one process has written so far."""
        after, more = "0", True
        while more:
            page = await self.get_run_logs(run_id, process, level=level, after=after)
            for line in page["lines"]:
                yield line
            after, more = page["nextCursor"], page["more"]

    async def iter_environment_logs(self, run_id: str, *, rollout_id: str | None = None) -> AsyncIterator[Row]:
        """Everything the environment logged, oldest first."""
        cursor: str | None = "0"
        while cursor is not None:
            page = await self._run(runs.environment_logs_page(run_id, rollout_id, cursor))
            for line in page["logs"]:
                yield line
            cursor = page.get("nextCursor")

    async def stream_run(self, run_id: str, last_event_id: int = 0) -> AsyncIterator[Row]:
        """Events, metrics and rollouts as they come, until the run ends; reconnects where it was."""
        feed = _Feed(run_id, last_event_id)
        while True:
            try:
                async with aclosing(self._events(feed.stream())) as events:
                    async for event in events:
                        if feed.is_end(event):
                            return
                        yield event
            except _FeedLost:
                pass
            await asyncio.sleep(feed.pause())


class _FeedLost(TrainerError):
    """The connection of a live feed is gone; another may take over."""


class _Feed:
    """Where a live feed is, and how often in a row its connection was lost."""

    def __init__(self, run_id: str, last_event_id: int) -> None:
        self._path = run_path(run_id, "stream")
        self._last_event_id = last_event_id
        self._lost = 0

    def stream(self) -> EventStream:
        headers = {"Last-Event-ID": str(self._last_event_id)}
        return EventStream("GET", self._path, headers=headers, timeout=_FEED_SECONDS, broken=_FeedLost)

    def is_end(self, event: Row) -> bool:
        """Note an event; True for the last one, which says that the run has ended."""
        if event.get("type") == "end":
            return True
        self._last_event_id, self._lost = event["id"], 0
        return False

    def pause(self) -> float:
        """Seconds until the next connection; raises when too many were lost."""
        self._lost += 1
        if self._lost >= _FEED_TRIES:
            raise TrainerError("The live feed broke off, and again when it was asked for anew. Try it later.")
        return retries.pause(self._lost, 0.5, 8.0)


def _announce(base_url: str, run_id: str) -> None:
    """Print a run's page; not for the published platform, whose scripts print it themselves."""
    from benchmax.platform.sdk.run import page_url

    if base_url != config.PUBLISHED_URL:
        print(f"The run is at {page_url(base_url, run_id)}", file=sys.stderr)  # noqa: T201
