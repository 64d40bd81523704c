"""Tools that change state: every rollout moves money in a ledger of its own.

    python examples/tool_environment.py

The reward looks at the ledger, not at what the model says about it. Four rollouts run at once on one environment
instance; the ledgers do not mix because each is kept under its rollout's id.
"""

import asyncio
import json

from benchmax import BaseEnv, EnvHost, ScriptedModel, ToolCall, ToolDefinition, load_examples, run_group
from benchmax.errors import ToolError

ROWS = [
    {
        "prompt": "Move 30 from cash to savings, then say done.",
        "goal": {"cash": 70, "savings": 30},
        "init_rollout_args": {"accounts": {"cash": 100, "savings": 0}},
    }
]
TRANSFER = ToolDefinition(
    name="transfer",
    description="Move an amount from one account to another.",
    input_schema={
        "type": "object",
        "properties": {
            "source": {"type": "string"},
            "target": {"type": "string"},
            "amount": {"type": "integer", "minimum": 1},
        },
        "required": ["source", "target", "amount"],
    },
)


class Ledger(BaseEnv):
    system_prompt = "You keep the books. Use the tools."
    recommended_max_turns = 6

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ledgers = {}

    async def init_rollout(self, rollout_id, accounts, **rollout_args):
        self.ledgers[rollout_id] = dict(accounts)

    async def release_rollout(self, rollout_id):
        self.ledgers.pop(rollout_id, None)

    async def list_tools(self):
        return [TRANSFER]

    async def run_tool(self, rollout_id, tool_name, *, source, target, amount):
        ledger = self.ledgers[rollout_id]
        if source not in ledger or target not in ledger:
            raise ToolError(f"The accounts are {', '.join(ledger)}.")
        if ledger[source] < amount:
            raise ToolError(f"{source} holds only {ledger[source]}.")
        ledger[source] -= amount
        ledger[target] += amount
        return json.dumps(ledger)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"balanced": float(self.ledgers[rollout_id] == task["goal"])}


def clerk(messages):
    """A model that first names an account that does not exist, reads the error, and corrects itself."""
    seen = [message for message in messages if message["role"] == "tool"]
    if not seen:
        return ToolCall("transfer", '{"source": "cash", "target": "saving", "amount": 30}')
    if "Error" in seen[-1]["content"]:
        return ToolCall("transfer", '{"source": "cash", "target": "savings", "amount": 30}')
    return "done"


async def main():
    async with EnvHost(Ledger) as host:
        [example] = load_examples(ROWS, Ledger)
        rollouts = await run_group(host, example, ScriptedModel(clerk), samples=range(4))
    for message in rollouts[0].completion:
        calls = message.get("tool_calls") or []
        print(f"{message['role']:9}", *(call["function"]["arguments"] for call in calls), message["content"])
    print("rewards  ", [rollout.reward for rollout in rollouts])


if __name__ == "__main__":
    asyncio.run(main())
