"""What an environment is, its rows, and the ready ones. Start reading at `base_env`; README.md shows how to write one.

base_env, types        the hooks of an environment; messages, tools and examples
example_id             ids that are the same on every machine
reward_helpers         texts of a transcript, and scores of texts; normalise_rewards: what a reward may return
required_columns, rollout_state, generated_tasks, demonstration, io_loop   what environments share
catalogue, loading     the ready ones by name; an environment, its arguments and rows from what was typed
logging, legacy        which rollout a log line belongs to; environments in the older style
datasets/              rows of any source, checked and turned into examples
composed/              several environments in one
mcp/                   MCP servers as tools
remote/                an environment in a process of its own
line_processes/        helper processes for libraries that may hang or crash
arithmetic/, calculator/, code/, crm/, excel/, math/, reasoning/, search/, telestich/, wikipedia/   the ready ones

It may not know who plays an environment: rollouts, models and trainers are above it.
"""
