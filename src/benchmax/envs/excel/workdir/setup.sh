# The server is part of benchmax[mcp,envs]; there is nothing to install.
