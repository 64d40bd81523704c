"""Agents that are already running."""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.envs.mcp.provisioners.base import BaseProvisioner
from benchmax.errors import EnvDefinitionError


class ManualProvisioner(BaseProvisioner):
    """Uses agents that run at these addresses, and leaves them running.

    Until an agent is connected and says how many rollouts it serves, it counts as one. `ParallelMcpEnv(api_secret=…)`
    takes the secret that the agents were started with.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        if not addresses:
            raise EnvDefinitionError("ManualProvisioner needs at least one address. Give host:port of a running agent.")
        self._addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        if wrong := [each for each in self._addresses if "://" in each]:
            raise EnvDefinitionError(f"The address {wrong[0]!r} of an agent is a URL. Give host:port, or unix:/path.")

    @property
    def num_servers(self) -> int:
        return len(self._addresses)

    async def provision_servers(self, api_secret: str) -> list[str]:
        return list(self._addresses)

    async def teardown(self) -> None:
        """Does nothing: whoever started the agents ends them."""
