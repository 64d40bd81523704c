"""Environments made of MCP servers: existing servers as tools, every rollout with a copy of its own.

    from benchmax.envs.mcp import ParallelMcpEnv
    from benchmax.envs.mcp.provisioners import LocalProvisioner

    env = ParallelMcpEnv("my_workdir", LocalProvisioner("my_workdir", num_servers=20))

How it is built, from the rollout down to the server:

    ParallelMcpEnv ─ pool ─ link ═══ one connection a machine ═══ agent ─ node ─ stock ─ seat ─ session ─ server
                                                                                         └ nursery: forks or runs it

Covered
- Each rollout has fresh processes, a private directory and a token. A server reads the system, the interpreters and the
  workdir, writes in its own directory alone, and sees few environment variables (Linux 5.13 and later; no root needed).
- A server that dies ends its own rollout's calls; a machine that dies ends its own rollouts. Both are replaced.
- Servers, agent and what they started end with the process that made the environment, however it ends.

Not covered
- All servers run as one user, with network. One that listens on a port can be reached by others on the machine.
- Without landlock only file modes and scrubbed variables keep rollouts apart; `env.state()` says which it is.
- The connection to another machine is not encrypted: use a private network or a tunnel.
"""

from __future__ import annotations

from benchmax.envs.mcp.client.reward_client import McpClient
from benchmax.envs.mcp.env import ParallelMcpEnv
from benchmax.envs.mcp.packed_workdir import Luggage

__all__ = ["Luggage", "McpClient", "ParallelMcpEnv"]
