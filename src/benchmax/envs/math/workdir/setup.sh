# The calculator needs nothing but benchmax[mcp].
