"""The 25 tools as an MCP server on standard input and output: `python -m benchmax.envs.crm.mcp_server [salesforce]`.

The file company.json in a rollout's directory says which company it is about; without it, the first company. The file
is read at each call, because it is written after the server has started.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmax.envs.crm.org.base import Org
from benchmax.envs.crm.org.embedded import COMPANY_FILE, org_of
from benchmax.envs.crm.org.salesforce import SalesforceOrg
from benchmax.envs.crm.tools import TOOLS, call_tool
from benchmax.envs.mcp.tool_server import serve_tools


async def call(name: str, arguments: dict[str, Any]) -> str:
    return await call_tool(_org(), name, arguments)


def _org() -> Org:
    if sys.argv[1:] == ["salesforce"]:
        return _live()
    company = Path(COMPANY_FILE)
    return org_of(json.loads(company.read_text()) if company.exists() else 0)


_live = lru_cache(maxsize=1)(SalesforceOrg)


if __name__ == "__main__":
    asyncio.run(serve_tools("crm", [tool.definition for tool in TOOLS.values()], call))
