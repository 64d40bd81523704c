"""Questions about a company's customers, cases and agents, answered with the tools of a CRM.

crm_env     the environments: in this process, on MCP servers here, on rented machines; start reading here
reward      how an answer is scored
tasks/      the kinds of tasks, with answers and solutions
tools/      the 25 tools; mcp_server serves them to an MCP client
org/        where the records are: SQLite, or a live Salesforce org
soql/       the query languages
company/    the generated company
workdir/, live_workdir/    the MCP server as an environment's folder, of a generated company and of a live org
"""

from benchmax.envs.crm.crm_env import CRMEnv, CRMEnvInProcess, CRMEnvLocal, CRMEnvSkypilot

__all__ = ["CRMEnv", "CRMEnvInProcess", "CRMEnvLocal", "CRMEnvSkypilot"]
