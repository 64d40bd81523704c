"""A simulated user: the model in training talks to another model that plays a person with a wish.

    python examples/simulated_user.py

The person is a tool, `say`, so that a rollout goes on until the model stops talking and answers. Each rollout has a
person of its own, who knows the wish and tells only what is asked; what was said is kept by rollout. The person here is
a local server with a few rules; any OpenAI-compatible server takes its place:
`Travel(model="…", base_url="https://…/v1")`.
"""

import asyncio
import re
from typing import ClassVar

from benchmax import BaseEnv, EnvHost, HttpModel, Sampling, ScriptedModel, ToolDefinition, evaluate, load_examples
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import only_answer
from benchmax.envs.types import ToolCall
from benchmax.errors import ModelError, ToolError
from benchmax.testing import FakeModelServer

CITIES, DAYS = ("Oslo", "Porto", "Turin", "Basel"), ("Monday", "Friday")
ROWS = [{"city": city, "day": day} for city in CITIES for day in DAYS]
PERSONA = (
    "You are a customer of a travel agency. You want to go to {city} on {day}. Answer in one short sentence, and say "
    "only what you are asked for. Never tell both at once."
)


class Travel(BaseEnv):
    """Find out where somebody wants to go, and when; then book."""

    system_prompt = "Talk to the customer with `say`. Then book: <answer>CITY, DAY</answer>."
    recommended_max_turns = 6
    PRIMARY_REWARD_KEY = "booked"
    reward_weights: ClassVar = {"booked": 1.0, "short": 0.1}

    def __init__(self, model="customer", base_url=None, turns=4, **kwargs):
        super().__init__(**kwargs)
        self.customer = HttpModel(model, base_url, tries=2, timeout=30.0)
        self.turns = turns
        self.talks = {}

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        # The wish goes to the person and to the reward; the prompt must not tell it.
        wish = {"city": example["city"], "day": example["day"]}
        prompt = [{"role": "user", "content": "A customer is at the desk."}]
        return make_example(prompt, {"ground_truth": f"{wish['city']}, {wish['day']}"}, wish)

    async def init_rollout(self, rollout_id, **wish):
        self.talks[rollout_id] = [{"role": "system", "content": PERSONA.format(**wish)}]

    async def list_tools(self):
        schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 500}}, "required": ["text"]}
        return [ToolDefinition("say", "Say something to the customer, and hear the reply.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        talk = self.talks[rollout_id]
        if len(talk) > 2 * self.turns:
            raise ToolError("The customer has lost patience and says nothing more. Book now.")
        said = [*talk, {"role": "user", "content": tool_args["text"]}]
        conversation = self.customer.converse(sampling=Sampling(temperature=0.7, max_tokens=60))
        try:
            reply = await conversation.reply(said)
        except ModelError as error:
            raise ToolError("The customer did not hear you. Say it again.") from error
        finally:
            await conversation.aclose()
        heard = str(reply.message.get("content") or "")
        self.talks[rollout_id] = [*said, {"role": "assistant", "content": heard}]
        return heard

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        booked = only_answer(messages, 100) == task["ground_truth"]
        said = len(self.talks[rollout_id]) // 2
        return {"booked": float(booked), "short": float(booked and said <= 2)}

    async def release_rollout(self, rollout_id):
        self.talks.pop(rollout_id, None)

    async def shutdown(self):
        await self.customer.aclose()


def customer(body):
    """What the customer's server says: the city when asked where, the day when asked when."""
    wish = re.search(r"go to (\w+) on (\w+)\.", body["messages"][0]["content"])
    asked = body["messages"][-1]["content"].lower()
    if "where" in asked:
        return f"To {wish[1]}, please."
    return f"On {wish[2]}." if "when" in asked else "I would like to travel."


def agent(messages):
    """A model that asks both, and books."""
    heard = [str(message["content"]) for message in messages if message["role"] == "tool"]
    if len(heard) < 2:
        return ToolCall("say", ('{"text": "Where to?"}', '{"text": "And when?"}')[len(heard)])
    city, day = (re.search(pattern, text)[1] for pattern, text in zip((r"To (\w+)", r"On (\w+)"), heard, strict=True))
    return f"<answer>{city}, {day}</answer>"


async def main():
    async with FakeModelServer(customer) as server, EnvHost(lambda: Travel(base_url=server.base_url)) as host:
        done = await evaluate(host, load_examples(ROWS, Travel), ScriptedModel(agent), group_size=2)
    print(f"booked {done.report.components['booked'].mean:.2f} of {done.report.rollouts} trips")
    print(f"{done.report.tool_calls:.1f} questions a customer, {done.report.turns:.1f} turns")


if __name__ == "__main__":
    asyncio.run(main())
