"""Answer questions about a company's customers, cases and agents with the tools of a CRM.

The same tasks and tools are offered in three places:

CRMEnvInProcess   tools in this process, milliseconds a rollout; what `benchmax train crm` uses
CRMEnvLocal       an MCP server for every rollout, on this machine
CRMEnvSkypilot    the same on rented machines
CRMEnv            the same on any provisioner

The records are a generated company's in SQLite, or with `org="salesforce"` a live org's.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.envs.crm.base import COMPANY_FILE, CRMBase, check_rows
from benchmax.envs.crm.org.base import Org
from benchmax.envs.crm.org.embedded import org_of
from benchmax.envs.crm.org.salesforce import SalesforceOrg
from benchmax.envs.crm.reward import score_task
from benchmax.envs.crm.tasks import DEFAULT_LEVEL, LEVELS
from benchmax.envs.crm.tools import TOOLS, call_tool
from benchmax.envs.generated_tasks import tools_of_level
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import BaseProvisioner, LocalProvisioner, SkypilotProvisioner
from benchmax.envs.rollout_state import RolloutState
from benchmax.envs.types import Messages, RewardValue, ToolDefinition
from benchmax.errors import EnvDefinitionError

ORGS = ("embedded", "salesforce")
WORKDIR = Path(__file__).parent / "workdir"
LIVE_WORKDIR = Path(__file__).parent / "live_workdir"


class CRMEnvInProcess(CRMBase):
    """Questions about a company's customers, cases and agents, answered with the tools of a CRM in this process.

    No tool changes a record, so all rollouts of a company share its records.
    """

    def __init__(self, level: str = DEFAULT_LEVEL, org: str = "embedded", company: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._level = level
        self._listed = tools_of_level(LEVELS, level)
        self._company = company
        self._live = SalesforceOrg() if _is_live(org) else None
        self._rollouts: RolloutState[Org] = RolloutState()

    async def list_tools(self) -> list[ToolDefinition]:
        return [TOOLS[name].definition for name in self._listed]

    async def init_rollout(
        self, rollout_id: str, company: int | None = None, level: str | None = None, **rollout_args: Any
    ) -> None:
        check_rows(self._level, level, company, self._live is not None)
        if self._live is None:
            seed = self._company if company is None else company
            self._rollouts[rollout_id] = await asyncio.to_thread(org_of, seed)
        else:
            await self._live.open()
            self._rollouts[rollout_id] = self._live

    async def release_rollout(self, rollout_id: str) -> None:
        self._rollouts.pop(rollout_id, None)

    async def run_tool(self, rollout_id: str, tool_name: str, /, **tool_args: Any) -> str:
        return await call_tool(self._rollouts[rollout_id], tool_name, tool_args, self._listed)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        return {"match": score_task(messages, task or {})}

    async def shutdown(self) -> None:
        if self._live is not None:
            self._live.close()


def _is_live(org: str) -> bool:
    if org not in ORGS:
        raise EnvDefinitionError(f"There is no org {org!r}. It is one of: {', '.join(ORGS)}.")
    return org == "salesforce"


class CRMEnv(CRMBase, ParallelMcpEnv):
    """The tools on MCP servers, one for each rollout. Give a workdir of your own to change the server or the reward."""

    def __init__(
        self,
        workdir_path: str | os.PathLike[str] | None = None,
        provisioner: BaseProvisioner | None = None,
        level: str = DEFAULT_LEVEL,
        org: str = "embedded",
        **kwargs: Any,
    ) -> None:
        self._level = level
        self._live = _is_live(org)
        kwargs.setdefault("allowed_tools", tools_of_level(LEVELS, level))
        super().__init__(workdir_path or workdir_of(org), provisioner, **kwargs)

    async def init_rollout(
        self, rollout_id: str, company: int | None = None, level: str | None = None, **rollout_args: Any
    ) -> None:
        check_rows(self._level, level, company, self._live)
        await super().init_rollout(rollout_id, **rollout_args)
        if company is not None:
            await self.copy_content_to_workspace(rollout_id, json.dumps(company), COMPANY_FILE)


class CRMEnvLocal(CRMEnv):
    """On MCP servers of this machine."""

    def __init__(self, num_local_servers: int = 5, org: str = "embedded", **kwargs: Any) -> None:
        workdir = workdir_of(org)
        super().__init__(workdir, LocalProvisioner(workdir, num_local_servers), org=org, **kwargs)


class CRMEnvSkypilot(CRMEnv):
    """On MCP servers of machines that SkyPilot rents."""

    def __init__(
        self, cloud: str = "azure", num_nodes: int = 2, servers_per_node: int = 5, org: str = "embedded", **kwargs: Any
    ) -> None:
        workdir = workdir_of(org)
        provisioner = SkypilotProvisioner(workdir, cloud or "azure", num_nodes, servers_per_node)
        super().__init__(workdir, provisioner, org=org, **kwargs)


def workdir_of(org: str) -> Path:
    """The folder of the MCP server for an org."""
    return LIVE_WORKDIR if _is_live(org) else WORKDIR
