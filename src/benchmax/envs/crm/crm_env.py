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
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.crm.org.base import Org
from benchmax.envs.crm.org.embedded import COMPANY_FILE, org_of
from benchmax.envs.crm.org.salesforce import SalesforceOrg
from benchmax.envs.crm.reward import score_task
from benchmax.envs.crm.tasks import DEFAULT_LEVEL, KINDS, LEVELS, make_rows
from benchmax.envs.crm.tools import TOOLS, call_tool
from benchmax.envs.generated_tasks import check_level, row_example, tools_of_level, with_answer, worked_example
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import BaseProvisioner, LocalProvisioner, SkypilotProvisioner
from benchmax.envs.required_columns import require_columns
from benchmax.envs.reward_helpers import accepted_answers
from benchmax.envs.rollout_state import RolloutState
from benchmax.envs.types import Example, Messages, RewardValue, ToolDefinition
from benchmax.errors import EnvDefinitionError

ORGS = ("embedded", "salesforce")
WORKDIR = Path(__file__).parent / "workdir"
LIVE_WORKDIR = Path(__file__).parent / "live_workdir"
COLUMNS = ("task", "persona", "query", "answer", "reward_metric")
_ARTICLE = {"Id": "ka0FansWarranty", "Title": "Warranty: Fans", "Content": "The warranty on fans lasts 60 months."}
WORKED_EXAMPLE: Messages = worked_example(
    "You work for Breeze Fans.\nknowledge_qa\nHow many months does the warranty on fans last?",
    "search_knowledge_articles",
    {"search_term": "warranty fans"},
    json.dumps([_ARTICLE]),
    "<answer>60</answer>",
)
"""A worked example, for the level at which small models begin; no company sells fans."""


class CRMBase(BaseEnv):
    """Rows in the columns of CRMArena: task, persona, query, answer, reward_metric, and, if it has any, metadata."""

    system_prompt = (
        "Answer the question about the company's CRM with the tools, one call at a time. "
        "Give the answer alone in <answer> tags, several separated by commas, None if nothing matches."
    )
    recommended_max_turns = 12
    recommended_max_tool_calls = 12
    PRIMARY_REWARD_KEY = "match"

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        require_columns(row, *COLUMNS)
        parts = (row["persona"], row["task"], _metadata(row).get("required"), row["query"])
        question = "\n".join(str(part) for part in parts if part)
        task: dict[str, Any] = {
            "kind": row["task"],
            "ground_truth": accepted_answers(row["answer"]),
            "reward_metric": row["reward_metric"],
        }
        if row.get("facts") is not None:
            task |= {"facts": dict(row["facts"]), "company": row["company"]}
        shown = WORKED_EXAMPLE if row.get("level") == DEFAULT_LEVEL else []
        return row_example(row, question, task, shown, ("company", "level"))

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """The rows of a level (`rows=320, seed=0`), made here; any other name is looked up on the hub."""
        if dataset_name in LEVELS:
            return make_rows(dataset_name, **kwargs), None
        return super().load_dataset(dataset_name, **kwargs)

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        truth = (example.get("task") or {}).get("ground_truth")
        return None if truth is None else f"<answer>{', '.join(truth)}</answer>"

    def demonstrate(self, example: Example) -> Generator[Any, Any, None] | None:
        """The solution of a generated task, from the facts in its question; other rows have none."""
        task = example.get("task") or {}
        if "facts" not in task or task.get("kind") not in KINDS:
            return None
        return with_answer(KINDS[task["kind"]].solve(task["facts"]))


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a row; some files hold it as JSON text."""
    found = row.get("metadata")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return {}
    return found if isinstance(found, Mapping) else {}


def check_rows(level: str, of_row: str | None, company: int | None, live: bool) -> None:
    """Raises EnvDefinitionError when a row does not fit the environment that plays it."""
    if live and company is not None:
        raise EnvDefinitionError(
            "These rows are about a generated company, and the tools ask a live org. Give rows about that, with --data."
        )
    check_level(LEVELS, level, of_row)


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
