"""The port that every kind of machine implements.

A provisioner starts one agent (`python -m benchmax.envs.mcp.agent`) on each of its machines and returns their
addresses. It knows nothing of rollouts; the pool connects to the agents with the secret that they were started with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from benchmax.envs.mcp.server_config import memory_bytes


def agent_arguments(servers: int, server_memory: str | None) -> list[str]:
    """Command-line arguments of every agent: how many rollouts it serves, and the memory limit of a server."""
    if server_memory is None:
        return ["--servers", str(servers)]
    memory_bytes(server_memory)
    return ["--servers", str(servers), "--server-memory", server_memory.replace(" ", "")]


class BaseProvisioner(ABC):
    """Machines that run MCP servers."""

    @property
    @abstractmethod
    def num_servers(self) -> int:
        """How many rollouts all machines together can serve at once."""

    @abstractmethod
    async def provision_servers(self, api_secret: str) -> list[str]:
        """Start an agent with this secret on every machine; returns the "host:port" or "unix:/path" of each.

        Called once. When it fails, it leaves nothing running.
        """

    async def recover(self, address: str, api_secret: str) -> str | None:
        """The address of a lost agent's successor, or None when there is none.

        Called again, with growing pauses, until an agent answers there. By default the same one may come back.
        """
        return address

    @abstractmethod
    async def teardown(self) -> None:
        """End everything that was started. May be called twice, or when nothing was started."""
