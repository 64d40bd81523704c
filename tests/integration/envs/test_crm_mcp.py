"""The CRM environment on MCP servers: the same tools and rewards as in the process."""

from __future__ import annotations

import pytest
import yaml

from benchmax.envs.crm.crm_env import CRMEnvInProcess, CRMEnvLocal, CRMEnvSkypilot, workdir_of
from benchmax.envs.types import Example
from benchmax.models.scripted import ScriptedModel
from ready_world import play_all
from salesforce_world import examples


async def test_solutions_score_on_servers_of_their_own():
    chosen = [each for seed in range(2) for each in examples("reports", 1, seed)]
    env = CRMEnvLocal(num_local_servers=2, level="reports")
    assert await env.list_tools() == await CRMEnvInProcess(level="reports").list_tools()

    def wrong(example: Example) -> ScriptedModel:
        return ScriptedModel("<answer>wrong</answer>")

    first = await play_all(env, chosen)
    assert [rollout.rewards for rollout in first] == [{"match": 1.0}] * 2
    second = await play_all(CRMEnvLocal(num_local_servers=1, level="reports"), chosen[:1], wrong)
    assert [rollout.rewards for rollout in second] == [{"match": 0.0}]


@pytest.mark.parametrize("org", ["embedded", "salesforce"])
def test_rented_machines_run_the_same_server(org: str):
    env = CRMEnvSkypilot("aws", num_nodes=3, servers_per_node=4, org=org, provision_at_init=False)
    assert env.num_servers == 12
    server = yaml.safe_load((workdir_of(org) / "mcp_config.yaml").read_text())["mcpServers"]["crm"]
    assert server["args"][:2] == ["-m", "benchmax.envs.crm.mcp_server"]
    assert ("salesforce" in server["args"]) == (org == "salesforce")
    assert all(value.startswith("${") for value in server.get("env", {}).values())  # no secret in the file
