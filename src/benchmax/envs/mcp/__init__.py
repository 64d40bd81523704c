"""Environments of MCP servers: existing servers as tools, fresh ones for every rollout.

    from benchmax.envs.mcp import ParallelMcpEnv
    from benchmax.envs.mcp.provisioners import LocalProvisioner

    env = ParallelMcpEnv("my_workdir", LocalProvisioner("my_workdir", num_servers=20))

From the rollout down to the server:

    env ─ pool ─ agent_client ═══ one connection per machine ═══ agent/ ─ client/ ─ server process
                                                                      └ fork/: starts and confines it

env             `ParallelMcpEnv`; start reading here
workdir         the folder that defines an environment; server_config: its servers; packed_workdir: to pickle it
pool            leases servers on all machines to rollouts; agent_client: the connection to one of them
provisioners/   machines
agent/          the process on each machine that runs servers
setup/          runs setup.sh, keeps what it installs
client/         sessions with one server
fork/           starts and confines server processes (Linux)
load_test       `benchmax mcp bench`
tool_server     an environment's own tools as an MCP server
timings, frame_socket   what the others share

Covered
- Each rollout has fresh processes, a private directory and a token. A server reads the system, the interpreters and the
  workdir, writes in its own directory alone, and sees few environment variables (Linux 5.13 and later; no root needed).
- A server that dies ends its own rollout's calls; a machine that dies ends its own rollouts. Both are replaced.
- Servers, agent and what they started end with the process that made the environment, however it ends.

Not covered
- All servers run as one user, with network. One that listens on a port can be reached by others on the machine.
- Without Landlock only file modes and scrubbed variables keep rollouts apart; `env.state()` says which it is.
- The connection to another machine is not encrypted: use a private network or a tunnel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmax.envs.mcp.client.reward_client import McpClient
from benchmax.envs.mcp.packed_workdir import Luggage, PackedWorkdir

if TYPE_CHECKING:
    from benchmax.envs.mcp.env import ParallelMcpEnv

__all__ = ["Luggage", "McpClient", "PackedWorkdir", "ParallelMcpEnv"]


def __getattr__(name: str) -> Any:
    # An agent starts in half the time without what only the environment's side needs.
    if name == "ParallelMcpEnv":
        from benchmax.envs.mcp.env import ParallelMcpEnv

        return ParallelMcpEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
