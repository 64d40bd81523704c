"""The platform from Python: runs, rollouts, environments, datasets, users.

    trainer = TrainerClient(api_key=…)
    run_id = trainer.launch_training_run("simple", **asdict(uploaded))
    trainer.run(run_id).metrics_df()

`AsyncTrainerClient` has the same methods as coroutines, and its iterators are async. Both are tables over the same
descriptions in `requests`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmax import config
from benchmax.platform.sdk.calls import async_iterator, async_method, async_procedure, iterator, method, procedure
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


class TrainerClient(Connection):
    """Launches training runs and reads what they did."""

    list_launch_args = method(launches.list_launch_args)
    queue_run = procedure(launches.queue_run)
    launch_environment = method(launches.launch_environment)
    launch_sft_run = method(launches.launch_sft_run)
    fork_run = method(launches.fork_run)

    list_runs = procedure(runs.list_runs)
    get_run = method(runs.get_run)
    get_run_details = method(runs.get_run_details)
    get_run_events = method(runs.get_run_events)
    get_run_scalars = method(runs.get_run_scalars)
    get_run_config = method(runs.get_run_config)
    get_run_system = method(runs.get_run_system)
    get_run_logs = method(runs.get_run_logs)
    get_environment_logs = procedure(runs.get_environment_logs)
    iter_run_logs = iterator(runs.iter_run_logs)
    iter_environment_logs = iterator(runs.iter_environment_logs)
    stream_run = iterator(runs.stream_run)
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
    download_checkpoint = procedure(checkpoints.download_checkpoint)

    list_environments = method(resources.list_environments)
    get_environment = method(resources.get_environment)
    examine_environment = procedure(resources.examine_environment)
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


class AsyncTrainerClient(AsyncConnection):
    """`TrainerClient` for async code."""

    list_launch_args = async_method(launches.list_launch_args)
    queue_run = async_procedure(launches.queue_run)
    launch_environment = async_method(launches.launch_environment)
    launch_sft_run = async_method(launches.launch_sft_run)
    fork_run = async_method(launches.fork_run)

    list_runs = async_procedure(runs.list_runs)
    get_run = async_method(runs.get_run)
    get_run_details = async_method(runs.get_run_details)
    get_run_events = async_method(runs.get_run_events)
    get_run_scalars = async_method(runs.get_run_scalars)
    get_run_config = async_method(runs.get_run_config)
    get_run_system = async_method(runs.get_run_system)
    get_run_logs = async_method(runs.get_run_logs)
    get_environment_logs = async_procedure(runs.get_environment_logs)
    iter_run_logs = async_iterator(runs.iter_run_logs)
    iter_environment_logs = async_iterator(runs.iter_environment_logs)
    stream_run = async_iterator(runs.stream_run)
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
    download_checkpoint = async_procedure(checkpoints.download_checkpoint)

    list_environments = async_method(resources.list_environments)
    get_environment = async_method(resources.get_environment)
    examine_environment = async_procedure(resources.examine_environment)
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


def _announce(base_url: str, run_id: str) -> None:
    """Print a run's page; not for the published platform, whose scripts print it themselves."""
    from benchmax.platform.sdk.run import page_url

    if base_url != config.PUBLISHED_URL:
        print(f"The run is at {page_url(base_url, run_id)}", file=sys.stderr)  # noqa: T201
