"""Where MCP servers run: the port that every kind of machine implements.

A provisioner starts one agent (`python -m benchmax.envs.mcp.agent`) on each of its machines and says where they listen.
It knows nothing of rollouts; the pool connects to the agents with the secret that they were given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from benchmax.envs.mcp.workdir import memory_bytes


def agent_arguments(servers: int, server_memory: str | None) -> list[str]:
    """What every agent is told: how many rollouts it serves, and how much memory a server may take."""
    if server_memory is None:
        return ["--servers", str(servers)]
    memory_bytes(server_memory)
    return ["--servers", str(servers), "--server-memory", server_memory.replace(" ", "")]


class BaseProvisioner(ABC):
    """Machines that run MCP servers."""

    @property
    @abstractmethod
    def num_servers(self) -> int:
        """Rollouts that can be served at once, over all machines."""

    @abstractmethod
    async def provision_servers(self, api_secret: str) -> list[str]:
        """Start an agent on every machine, each with this secret; gives "host:port" or "unix:/path" of each.

        Called once. When it fails it leaves nothing running.
        """

    async def recover(self, address: str, api_secret: str) -> str | None:
        """An agent was lost: gives where its successor listens, or None when there is none.

        Called again, with growing pauses, until an agent answers there. Without a better idea, it may come back.
        """
        return address

    @abstractmethod
    async def teardown(self) -> None:
        """End everything that was started; may be called again, and when nothing was."""
