"""Machines for MCP servers: this one, those already running, and clusters."""

from __future__ import annotations

from benchmax.envs.mcp.provisioners.base import BaseProvisioner
from benchmax.envs.mcp.provisioners.local import LocalProvisioner
from benchmax.envs.mcp.provisioners.manual import ManualProvisioner
from benchmax.envs.mcp.provisioners.ray import RayProvisioner
from benchmax.envs.mcp.provisioners.skypilot import SkypilotProvisioner

__all__ = ["BaseProvisioner", "LocalProvisioner", "ManualProvisioner", "RayProvisioner", "SkypilotProvisioner"]
