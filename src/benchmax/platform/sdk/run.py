"""A handle on one run: what it is doing, and what it did, as data frames."""

from __future__ import annotations

import html
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmax.errors import UsageError
from benchmax.platform.sdk.calls import Row, run_blocking
from benchmax.platform.sdk.requests.rollouts import rollout_rows
from benchmax.platform.sdk.requests.runs import ENDED, get_run, metric_rows, page_url

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import AsyncTrainerClient, TrainerClient
    from benchmax.platform.sdk.playground import AsyncPlaygroundSession, PlaygroundSession
    from benchmax.platform.sdk.transport import Endpoint, Exchange

_METRIC_COLUMNS = ["mode", "step"]
_ROLLOUT_COLUMNS = ["id", "step", "mode", "promptMessageId", "totalReward"]


class _Run:
    """What both kinds of handle share."""

    def __init__(self, client: Endpoint, run_id: str) -> None:
        self._client = client
        self.id = run_id

    @property
    def url(self) -> str:
        """The run's page in the console."""
        return page_url(self._client.base_url, self.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


class TrainingRun(_Run):
    """One run. Each read of an attribute is a request."""

    _client: TrainerClient

    @property
    def details(self) -> Row:
        return self._client.get_run_details(self.id)

    @property
    def status(self) -> str:
        return str(self._client.get_run(self.id)["status"])

    def wait(self, seconds: float | None = None, poll: float = 2.0) -> str:
        """Wait until the run has ended; returns its status. TimeoutError when it takes longer than `seconds`."""
        return run_blocking(_wait(self._client._exchange, self.id, self.url, seconds, poll))

    def cancel(self) -> Row:
        return self._client.cancel_run(self.id)

    def playground(
        self, checkpoint: str = "latest", *, environment: bool = True, example_id: str | None = None
    ) -> PlaygroundSession:
        """Open a chat with a checkpoint (`base`, `latest`, `best`, `step-N`), also while the run trains.

        It goes through the run's environment, with its system prompt and tools, unless `environment` is off. With
        `example_id` that example's prompt comes first, and answers are scored.
        """
        return self._client.playground(self.id, checkpoint=checkpoint, environment=environment, example_id=example_id)

    def download(self, out: str, checkpoint: str = "best", *, format: str = "merged") -> str:
        """Write a checkpoint's model, or its `adapter`, into a folder; returns the checkpoint's name."""
        return self._client.download_checkpoint(self.id, out, checkpoint, format=format)

    def fork(self, checkpoint: str = "best", *, name: str | None = None, **launcher_args: Any) -> TrainingRun:
        """A new run that begins with a checkpoint's weights, with some launch arguments changed."""
        run_id = self._client.fork_run(self.id, checkpoint, name=name, launcher_args=launcher_args)
        return TrainingRun(self._client, run_id)

    def metrics_df(self, mode: str | None = None) -> Any:
        """A pandas DataFrame: one row for each mode and step, one column for each metric."""
        return _frame(run_blocking(metric_rows(self._client._exchange, self.id, mode)), _METRIC_COLUMNS)

    def rollouts_df(self, mode: str = "eval", limit: int = 10_000) -> Any:
        """A pandas DataFrame of rollouts, newest step first; each reward component is a column `reward/<name>`."""
        return _frame(run_blocking(rollout_rows(self._client._exchange, self.id, mode, limit)), _ROLLOUT_COLUMNS)

    def _repr_html_(self) -> str:
        details = self.details
        total = details.get("totalSteps")
        done = 0 if details.get("latestStep") is None else details["latestStep"] + 1  # steps count from 0 on the wire
        cells = {
            "run": details.get("name"),
            "status": details.get("status"),
            "steps": f"{done} / {total}" if total else done,
            "doing": details.get("latestActivityMessage"),
            "page": self.url,
        }
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in cells.items())
        return f"<table>{rows}</table>"


class AsyncTrainingRun(_Run):
    """`TrainingRun` for async code; `details` and `status` are coroutines."""

    _client: AsyncTrainerClient

    async def details(self) -> Row:
        return await self._client.get_run_details(self.id)

    async def status(self) -> str:
        return str((await self._client.get_run(self.id))["status"])

    async def wait(self, seconds: float | None = None, poll: float = 2.0) -> str:
        """Wait until the run has ended; returns its status. TimeoutError when it takes longer than `seconds`."""
        return await _wait(self._client._exchange, self.id, self.url, seconds, poll)

    async def cancel(self) -> Row:
        return await self._client.cancel_run(self.id)

    async def playground(
        self, checkpoint: str = "latest", *, environment: bool = True, example_id: str | None = None
    ) -> AsyncPlaygroundSession:
        """Open a chat with a checkpoint; see `TrainingRun.playground`."""
        options = {"checkpoint": checkpoint, "environment": environment, "example_id": example_id}
        return await self._client.playground(self.id, **options)

    async def download(self, out: str, checkpoint: str = "best", *, format: str = "merged") -> str:
        """Write a checkpoint's model, or its `adapter`, into a folder; returns the checkpoint's name."""
        return await self._client.download_checkpoint(self.id, out, checkpoint, format=format)

    async def fork(
        self, checkpoint: str = "best", *, name: str | None = None, **launcher_args: Any
    ) -> AsyncTrainingRun:
        """A new run that begins with a checkpoint's weights, with some launch arguments changed."""
        run_id = await self._client.fork_run(self.id, checkpoint, name=name, launcher_args=launcher_args)
        return AsyncTrainingRun(self._client, run_id)

    async def metrics_df(self, mode: str | None = None) -> Any:
        """A pandas DataFrame: one row for each mode and step, one column for each metric."""
        return _frame(await metric_rows(self._client._exchange, self.id, mode), _METRIC_COLUMNS)

    async def rollouts_df(self, mode: str = "eval", limit: int = 10_000) -> Any:
        """A pandas DataFrame of rollouts, newest step first; each reward component is a column `reward/<name>`."""
        return _frame(await rollout_rows(self._client._exchange, self.id, mode, limit), _ROLLOUT_COLUMNS)


async def _wait(exchange: Exchange, run_id: str, url: str, seconds: float | None, poll: float) -> str:
    most = float("inf") if seconds is None else seconds
    run = await exchange.poll(get_run(run_id), lambda run: run["status"] in ENDED, poll, most)
    if run["status"] not in ENDED:
        raise TimeoutError(f"The run is still {run['status']}. Wait longer, or look at {url}.")
    return str(run["status"])


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> Any:
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UsageError("Data frames need pandas: pip install pandas.") from None
    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=columns)
