"""A handle on one run: what it is doing, and what it did, as data frames."""

from __future__ import annotations

import html
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmax.errors import UsageError
from benchmax.platform.sdk.calls import Awaiting, Blocking, Row
from benchmax.platform.sdk.requests.checkpoints import download_checkpoint
from benchmax.platform.sdk.requests.rollouts import rollout_rows
from benchmax.platform.sdk.requests.runs import ENDED, cancel_run, get_run, metric_rows, page_url
from benchmax.platform.sdk.sync_and_async import procedure

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import AsyncTrainerClient, TrainerClient
    from benchmax.platform.sdk.playground import AsyncPlaygroundSession, PlaygroundSession
    from benchmax.platform.sdk.transport import Exchange

_METRIC_COLUMNS = ["mode", "step"]
_ROLLOUT_COLUMNS = ["id", "step", "mode", "promptMessageId", "totalReward"]


class _Run:
    """What both kinds of handle share."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._exchange: Exchange = client._exchange
        self.id = run_id

    @property
    def url(self) -> str:
        """The run's page in the console."""
        return page_url(self._exchange.base_url, self.id)

    @procedure
    async def wait(self, seconds: float | None = None, poll: float = 2.0) -> str:
        """Wait until the run has ended; returns its status. TimeoutError when it takes longer than `seconds`."""
        most = float("inf") if seconds is None else seconds
        run = await self._exchange.poll(get_run(self.id), lambda run: run["status"] in ENDED, poll, most)
        if run["status"] not in ENDED:
            raise TimeoutError(f"The run is still {run['status']}. Wait longer, or look at {self.url}.")
        return str(run["status"])

    @procedure
    async def cancel(self) -> Row:
        """Stop the run."""
        return await self._exchange.ask(cancel_run(self.id))

    @procedure
    async def download(self, out: str, checkpoint: str = "best", *, format: str = "merged") -> str:
        """Write a checkpoint's model, or its `adapter`, into a folder; returns the checkpoint's name."""
        return await download_checkpoint(self._exchange, self.id, out, checkpoint, format=format)

    @procedure
    async def metrics_df(self, mode: str | None = None) -> Any:
        """A pandas DataFrame: one row for each mode and step, one column for each metric."""
        return _frame(await metric_rows(self._exchange, self.id, mode), _METRIC_COLUMNS)

    @procedure
    async def rollouts_df(self, mode: str = "eval", limit: int = 10_000) -> Any:
        """A pandas DataFrame of rollouts, newest step first; each reward component is a column `reward/<name>`."""
        return _frame(await rollout_rows(self._exchange, self.id, mode, limit), _ROLLOUT_COLUMNS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


class TrainingRun(_Run, Blocking):
    """One run. Each read of an attribute is a request."""

    _client: TrainerClient

    @property
    def details(self) -> Row:
        return self._client.get_run_details(self.id)

    @property
    def status(self) -> str:
        return str(self._client.get_run(self.id)["status"])

    def playground(
        self, checkpoint: str = "latest", *, environment: bool = True, example_id: str | None = None
    ) -> PlaygroundSession:
        """Open a chat with a checkpoint (`base`, `latest`, `best`, `step-N`), also while the run trains.

        It goes through the run's environment, with its system prompt and tools, unless `environment` is off. With
        `example_id` that example's prompt comes first, and answers are scored.
        """
        return self._client.playground(self.id, checkpoint=checkpoint, environment=environment, example_id=example_id)

    def fork(self, checkpoint: str = "best", *, name: str | None = None, **launcher_args: Any) -> TrainingRun:
        """A new run that begins with a checkpoint's weights, with some launch arguments changed."""
        run_id = self._client.fork_run(self.id, checkpoint, name=name, launcher_args=launcher_args)
        return TrainingRun(self._client, run_id)

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


class AsyncTrainingRun(_Run, Awaiting):
    """`TrainingRun` for async code; `details` and `status` are coroutines."""

    _client: AsyncTrainerClient

    async def details(self) -> Row:
        return await self._client.get_run_details(self.id)

    async def status(self) -> str:
        return str((await self._client.get_run(self.id))["status"])

    async def playground(
        self, checkpoint: str = "latest", *, environment: bool = True, example_id: str | None = None
    ) -> AsyncPlaygroundSession:
        """Open a chat with a checkpoint; see `TrainingRun.playground`."""
        options = {"checkpoint": checkpoint, "environment": environment, "example_id": example_id}
        return await self._client.playground(self.id, **options)

    async def fork(
        self, checkpoint: str = "best", *, name: str | None = None, **launcher_args: Any
    ) -> AsyncTrainingRun:
        """A new run that begins with a checkpoint's weights, with some launch arguments changed."""
        run_id = await self._client.fork_run(self.id, checkpoint, name=name, launcher_args=launcher_args)
        return AsyncTrainingRun(self._client, run_id)


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> Any:
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UsageError("Data frames need pandas: pip install pandas.") from None
    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=columns)
