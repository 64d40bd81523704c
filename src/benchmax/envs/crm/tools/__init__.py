"""The 25 tools, written once: each asks an org in SOQL or SOSL, and knows nothing of what stands behind it.

`call_tool(org, name, arguments)` is the only way in: the in-process environment calls it directly, the MCP server in
`workdir/` calls it for its clients.

`registry` is the table of tools; `cases`, `agents`, `products`, `dates` and `queries` hold them by subject.
"""

from benchmax.envs.crm.tools import agents, cases, dates, products, queries
from benchmax.envs.crm.tools.registry import TOOLS, call_tool

__all__ = ["TOOLS", "agents", "call_tool", "cases", "dates", "products", "queries"]
