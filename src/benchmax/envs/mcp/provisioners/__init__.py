"""Machines for MCP servers; each provisioner starts an agent on every machine it knows.

base           the port, `BaseProvisioner`; start reading here
local          this machine
manual         agents that are already running
ray, skypilot  clusters
agent_process  an agent as a child process, for local and ray

They start and stop agents, and know nothing of rollouts.
"""

from __future__ import annotations

from benchmax.envs.mcp.provisioners.base import BaseProvisioner
from benchmax.envs.mcp.provisioners.local import LocalProvisioner
from benchmax.envs.mcp.provisioners.manual import ManualProvisioner
from benchmax.envs.mcp.provisioners.ray import RayProvisioner
from benchmax.envs.mcp.provisioners.skypilot import SkypilotProvisioner

__all__ = ["BaseProvisioner", "LocalProvisioner", "ManualProvisioner", "RayProvisioner", "SkypilotProvisioner"]
