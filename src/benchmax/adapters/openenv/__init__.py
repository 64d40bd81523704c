"""Our environments behind OpenEnv's protocol, for every trainer that uses it. Start reading at `server`.

server    `make_app`: one session of OpenEnv is one rollout; `python -m benchmax.adapters.openenv ENV` serves it
episode   a rollout as OpenEnv resets and steps it
"""

from benchmax.adapters.adapter import TrainerAdapter

ADAPTER = TrainerAdapter(
    name="openenv",
    title="OpenEnv",
    works=("openenv>=0.10,<0.11",),
    pin="openenv==0.10.0",
    offers="a server for any environment (python -m benchmax.adapters.openenv), and environments by openenv:URL",
)
