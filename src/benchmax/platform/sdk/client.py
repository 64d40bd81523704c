"""The platform from Python: runs, rollouts, environments, datasets, users.

    trainer = TrainerClient(api_key=…)
    run_id = trainer.launch_training_run("simple", **asdict(uploaded))
    trainer.run(run_id).metrics_df()

`AsyncTrainerClient` has the same methods as coroutines, and its iterators are async: both have the table of methods
here, made from the descriptions in `requests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmax.platform.sdk.requests import (
    accounts,
    checkpoints,
    comparisons,
    launches,
    resources,
    rollouts,
    runs,
    uploads,
)
from benchmax.platform.sdk.sync_and_async import iterator, procedure, request
from benchmax.platform.sdk.transport import AsyncConnection, Connection

if TYPE_CHECKING:
    from benchmax.platform.sdk.playground import AsyncPlaygroundSession, PlaygroundSession
    from benchmax.platform.sdk.run import AsyncTrainingRun, TrainingRun


class _TrainerMethods:
    """What both clients offer."""

    list_launch_args = request(launches.list_launch_args)
    print_launch_args = procedure(launches.print_launch_args)
    launch_training_run = procedure(launches.launch_training_run)
    queue_run = procedure(launches.queue_run)
    launch_environment = request(launches.launch_environment)
    launch_sft_run = request(launches.launch_sft_run)
    fork_run = request(launches.fork_run)

    list_runs = procedure(runs.list_runs)
    get_run = request(runs.get_run)
    get_run_details = request(runs.get_run_details)
    get_run_events = request(runs.get_run_events)
    get_run_scalars = request(runs.get_run_scalars)
    get_run_config = request(runs.get_run_config)
    get_run_system = request(runs.get_run_system)
    get_run_logs = request(runs.get_run_logs)
    get_environment_logs = procedure(runs.get_environment_logs)
    iter_run_logs = iterator(runs.iter_run_logs)
    iter_environment_logs = iterator(runs.iter_environment_logs)
    stream_run = iterator(runs.stream_run)
    change_run = request(runs.change_run)
    cancel_run = request(runs.cancel_run)
    resume_run = request(runs.resume_run)
    delete_run = request(runs.delete_run)
    list_external_evals = request(runs.list_external_evals)
    start_external_eval = request(runs.start_external_eval)
    rescore_run = request(runs.rescore_run)
    compare_run = procedure(comparisons.compare_run)
    get_comparison = request(comparisons.get_comparison)
    get_whole_comparison = procedure(comparisons.get_whole_comparison)
    get_comparison_summary = request(comparisons.get_comparison_summary)

    get_rollout_summary = request(rollouts.get_rollout_summary)
    get_rollout_heatmap = request(rollouts.get_rollout_heatmap)
    get_rollout_details = request(rollouts.get_rollout_details)
    get_rollout_mode_average = request(rollouts.get_rollout_mode_average)
    get_rollout_component_averages = request(rollouts.get_rollout_component_averages)
    list_rollouts = request(rollouts.list_rollouts)
    iter_rollouts = iterator(rollouts.iter_rollouts)

    list_checkpoints = request(checkpoints.list_checkpoints)
    download_checkpoint = procedure(checkpoints.download_checkpoint)

    list_environments = request(resources.list_environments)
    get_environment = request(resources.get_environment)
    examine_environment = procedure(resources.examine_environment)
    list_datasets = request(resources.list_datasets)
    create_dataset = request(resources.create_dataset)
    add_dataset_row = request(resources.add_dataset_row)
    delete_dataset = request(resources.delete_dataset)

    list_files = request(uploads.list_files)

    whoami = request(accounts.whoami)
    list_keys = request(accounts.list_keys)
    create_key = request(accounts.create_key)
    revoke_key = request(accounts.revoke_key)
    list_users = request(accounts.list_users)
    create_user = request(accounts.create_user)
    delete_user = request(accounts.delete_user)
    change_password = request(accounts.change_password)
    sign_out_everywhere = request(accounts.sign_out_everywhere)
    list_endpoints = request(accounts.list_endpoints)
    create_endpoint = request(accounts.create_endpoint)
    delete_endpoint = request(accounts.delete_endpoint)
    list_secrets = request(accounts.list_secrets)
    set_secret = request(accounts.set_secret)
    delete_secret = request(accounts.delete_secret)
    list_webhooks = request(accounts.list_webhooks)
    create_webhook = request(accounts.create_webhook)
    delete_webhook = request(accounts.delete_webhook)
    test_webhook = request(accounts.test_webhook)
    list_webhook_deliveries = request(accounts.list_webhook_deliveries)


class TrainerClient(_TrainerMethods, Connection):
    """Launches training runs and reads what they did."""

    def run(self, run_id: str) -> TrainingRun:
        """A handle on one run: its status, its metrics and rollouts as data frames."""
        from benchmax.platform.sdk.run import TrainingRun

        return TrainingRun(self, run_id)

    def playground(self, run_id: str, **options: Any) -> PlaygroundSession:
        """Open a chat with one of the run's checkpoints; see `TrainingRun.playground`."""
        from benchmax.platform.sdk.playground import PlaygroundSession

        return PlaygroundSession(self, run_id, **options)


class AsyncTrainerClient(_TrainerMethods, AsyncConnection):
    """`TrainerClient` for async code."""

    async def run(self, run_id: str) -> AsyncTrainingRun:
        """A handle on one run: its status, its metrics and rollouts as data frames."""
        from benchmax.platform.sdk.run import AsyncTrainingRun

        return AsyncTrainingRun(self, run_id)

    async def playground(self, run_id: str, **options: Any) -> AsyncPlaygroundSession:
        """Open a chat with one of the run's checkpoints; see `TrainingRun.playground`."""
        from benchmax.platform.sdk.playground import AsyncPlaygroundSession

        return await AsyncPlaygroundSession.open(self, run_id, **options)
