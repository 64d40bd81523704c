"""Agents that somebody else started."""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.envs.mcp.provisioners.base import BaseProvisioner


class ManualProvisioner(BaseProvisioner):
    """Uses agents that already run at these addresses, and leaves them running.

    Each tells how many rollouts it serves when it is connected to; until then it counts as one. The secret they were
    started with goes to `ParallelMcpEnv(api_secret=…)`.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        if not addresses:
            raise ValueError("ManualProvisioner needs at least one address. Give host:port of a running agent.")
        self._addresses = list(addresses)

    @property
    def num_servers(self) -> int:
        return len(self._addresses)

    async def provision_servers(self, api_secret: str) -> list[str]:
        return list(self._addresses)

    async def teardown(self) -> None:
        """They are not ours to end."""
