"""`python -m benchmax.envs.mcp.agent`: the node agent."""

import sys

from benchmax.envs.mcp.agent.serve import main

sys.exit(main())
