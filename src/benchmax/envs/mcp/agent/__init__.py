"""The agent: the process that runs MCP servers for rollouts, one on each machine.

serve            the command (`python -m benchmax.envs.mcp.agent`): options, start and end; start reading here
connection       one client's WebSocket: each operation, and the HTTP application
http_routes      plain HTTP for one rollout
auth             who may send requests
node             what one machine does: leases, tools, files, rewards
lease_pool       leases server sets to rollouts, keeps spare ones ready
server_set       the servers of one rollout, and their tools
server_launcher  starts one server, forked or by its command
rollout_dirs     the private directories of one rollout
workspace_files  files into and out of a workspace
reward_runner    runs reward functions in a process of their own
reward_worker    that process

It knows nothing of environments or provisioners; `agent_client` is the other end of its connections.
"""
