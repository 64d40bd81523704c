"""Rollouts played on the platform, streamed as they happen: what a run would see, before there is a run."""

from __future__ import annotations

from benchmax import config
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.calls import async_procedure, procedure
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.requests import played_rollouts
from benchmax.platform.sdk.requests.played_rollouts import ExampleValidation as ExampleValidation
from benchmax.platform.sdk.requests.played_rollouts import ValidationResult as ValidationResult
from benchmax.platform.sdk.transport import AsyncConnection, Connection


class RolloutClient(Connection):
    """Plays single rollouts and groups on the platform."""

    def __init__(
        self,
        api_key: str | None = None,
        server_url: str | None = None,
        timeout: float = 300.0,
        *,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, _server_url(server_url), timeout, token_provider)

    stream_rollout = procedure(played_rollouts.stream_rollout)
    run_group = procedure(played_rollouts.run_group)
    validate_examples = procedure(played_rollouts.validate_examples)


class AsyncRolloutClient(AsyncConnection):
    """`RolloutClient` for async code."""

    def __init__(
        self,
        api_key: str | None = None,
        server_url: str | None = None,
        timeout: float = 300.0,
        *,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, _server_url(server_url), timeout, token_provider)

    stream_rollout = async_procedure(played_rollouts.stream_rollout)
    run_group = async_procedure(played_rollouts.run_group)
    validate_examples = async_procedure(played_rollouts.validate_examples)


def _server_url(given: str | None) -> str:
    return given or config.setting("ROLLOUT_URL") or credentials.base_url()
