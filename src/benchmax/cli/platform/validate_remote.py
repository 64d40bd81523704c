"""The second part of `benchmax validate --remote`: rows played on the platform, as a run would play them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmax.cli.output import safe, stderr
from benchmax.cli.platform.connection import platform
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.readers import Source
from benchmax.errors import NotFoundError
from benchmax.platform.sdk.rollout_client import RolloutClient
from benchmax.platform.validation import first_rows, remote_checks

REMOTE_EXAMPLES = 2
"""Rows to play there by default: each is a conversation with a real model."""


@dataclass(frozen=True, slots=True)
class RemotePlay:
    """The platform that is to play, and with what."""

    address: str
    model: str | None
    packages: Sequence[str]

    @classmethod
    def find(cls, model: str | None, packages: Sequence[str]) -> RemotePlay:
        """Ask the platform: what it refuses is reported before the slow local checks."""
        with platform() as client:
            specs = client.list_launch_args()
        known = next((spec.enum for spec in specs if spec.name == "model" and spec.enum), None)
        if model and known and model not in known:
            raise NotFoundError(f"The platform has no model {model!r}. Choose one of: {', '.join(map(str, known))}.")
        return cls(client.base_url, model, packages)

    def play(
        self,
        env_class: type[BaseEnv],
        arguments: Mapping[str, Any],
        rows: tuple[Source, Source | None],
        settings: Mapping[str, Any],
        say: Callable[[str], None],
        full_messages: bool,
    ) -> dict[str, Any]:
        """Play the first rows there; returns what was found, with `ok`."""
        chosen = first_rows(*rows, settings.get("examples", REMOTE_EXAMPLES))
        stderr.print(f"Playing {len(chosen)} of the rows on {safe(self.address)}.")
        given = {name: settings[name] for name in ("max_turns", "max_tool_calls") if name in settings}
        return remote_checks(
            RolloutClient,
            chosen,
            say,
            env_class=env_class,
            constructor_args=arguments,
            pip_dependencies=self.packages,
            group_reward_samples=settings.get("group_samples", 2),
            full_messages=full_messages,
            **given,
            **({"llm_model": self.model} if self.model else {}),
        )
