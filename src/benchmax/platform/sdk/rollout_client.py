"""Rollouts played on the platform, streamed as they happen: what a run would see, before there is a run."""

from __future__ import annotations

from benchmax import config
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.requests import played_rollouts
from benchmax.platform.sdk.requests.played_rollouts import ExampleValidation as ExampleValidation
from benchmax.platform.sdk.requests.played_rollouts import ValidationResult as ValidationResult
from benchmax.platform.sdk.sync_and_async import procedure
from benchmax.platform.sdk.transport import AsyncConnection, Connection, Endpoint


class _RolloutMethods(Endpoint):
    """What both clients offer."""

    def __init__(
        self,
        api_key: str | None = None,
        server_url: str | None = None,
        timeout: float = 300.0,
        *,
        token_provider: TokenProvider | None = None,
    ) -> None:
        address = server_url or config.setting("ROLLOUT_URL") or credentials.base_url()
        super().__init__(api_key, address, timeout, token_provider)

    stream_rollout = procedure(played_rollouts.stream_rollout)
    run_group = procedure(played_rollouts.run_group)
    validate_examples = procedure(played_rollouts.validate_examples)


class RolloutClient(_RolloutMethods, Connection):
    """Plays single rollouts and groups on the platform."""


class AsyncRolloutClient(_RolloutMethods, AsyncConnection):
    """`RolloutClient` for async code."""
