"""A model as a tool: the model in training may ask an expert, within a budget, and what that costs is on record.

    python examples/model_as_tool.py

`Expert` is what to copy. Answers are cached, so the siblings of a group that ask the same pay once; each rollout has a
budget of calls; and `expert_usd` and `expert_calls` are reward components of weight 0, so their curves stand beside the
reward's without changing it. The expert here is a local server with an answer book; any OpenAI-compatible server takes
its place: `AskExpert(model="…", base_url="https://…/v1", price=(0.15, 0.60))`.
"""

import asyncio
from collections import Counter
from typing import ClassVar

from benchmax import BaseEnv, EnvHost, HttpModel, Sampling, ScriptedModel, ToolDefinition, evaluate, load_examples
from benchmax.envs.reward_helpers import exact_match, only_answer
from benchmax.envs.types import ToolCall
from benchmax.errors import ModelError, ToolError
from benchmax.testing import FakeModelServer

BOOK = {"Peru": "Lima", "Chad": "N'Djamena", "Oman": "Muscat", "Fiji": "Suva"}
ROWS = [{"prompt": f"What is the capital of {country}?", "ground_truth": city} for country, city in BOOK.items()]


class Expert:
    """Asks a model. Equal questions are asked once, also when several rollouts ask at the same moment."""

    def __init__(self, model: HttpModel, system_prompt: str, max_tokens: int = 64) -> None:
        self.model, self.system_prompt = model, system_prompt
        self.sampling = Sampling(temperature=0.0, max_tokens=max_tokens)
        self.answers: dict[str, asyncio.Task] = {}
        self.calls = self.cached = 0
        self.usd = 0.0

    async def ask(self, question: str) -> tuple[str, float]:
        """The answer, and what it cost now: nothing when it was known."""
        known = self.answers.get(question)
        if known is None:
            known = self.answers[question] = asyncio.ensure_future(self._ask(question))
            try:
                return await asyncio.shield(known)
            except BaseException:
                self.answers.pop(question, None)  # a failure is not an answer to remember
                raise
        self.cached += 1
        return (await asyncio.shield(known))[0], 0.0

    async def _ask(self, question: str) -> tuple[str, float]:
        conversation = self.model.converse(sampling=self.sampling)
        try:
            reply = await conversation.reply(
                [{"role": "system", "content": self.system_prompt}, {"role": "user", "content": question}]
            )
        finally:
            await conversation.aclose()
        self.calls += 1
        self.usd += reply.usage.cost_usd
        return str(reply.message.get("content") or ""), reply.usage.cost_usd


class AskExpert(BaseEnv):
    """Questions that a small model cannot know, with an expert at hand."""

    system_prompt = "Ask the expert. Answer in <answer> tags."
    recommended_max_turns = 3
    PRIMARY_REWARD_KEY = "correct"
    reward_weights: ClassVar = {"correct": 1.0, "expert_calls": 0.0, "expert_usd": 0.0}

    def __init__(self, model="expert", base_url=None, price=None, calls=1, **kwargs):
        super().__init__(**kwargs)
        client = HttpModel(model, base_url, price=price, tries=2, timeout=30.0)
        self.expert = Expert(client, "Answer with the name alone.")
        self.budget = calls
        self.asked, self.spent = Counter(), Counter()

    async def list_tools(self):
        schema = {
            "type": "object",
            "properties": {"question": {"type": "string", "maxLength": 300}},
            "required": ["question"],
        }
        return [ToolDefinition("ask_expert", f"Ask somebody who knows; at most {self.budget} time(s).", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        if self.asked[rollout_id] >= self.budget:
            raise ToolError("The expert has no more time for you. Answer now.")
        self.asked[rollout_id] += 1
        try:
            answer, usd = await self.expert.ask(tool_args["question"])
        except ModelError as error:
            raise ToolError("The expert cannot be reached. Answer as well as you can.") from error
        self.spent[rollout_id] += usd
        return answer

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        correct = exact_match(only_answer(messages, 100) or "", task["ground_truth"])
        return {"correct": correct, "expert_calls": self.asked[rollout_id], "expert_usd": self.spent[rollout_id]}

    async def release_rollout(self, rollout_id):
        self.asked.pop(rollout_id, None)
        self.spent.pop(rollout_id, None)

    async def shutdown(self):
        await self.expert.model.aclose()


def answer_book(body):
    """What the expert's server says."""
    asked = body["messages"][-1]["content"]
    return next((city for country, city in BOOK.items() if country in asked), "I do not know.")


def student(messages):
    """A model that asks, and repeats what it hears."""
    if messages[-1]["role"] == "user":
        return ToolCall("ask_expert", f'{{"question": "{messages[-1]["content"]}"}}')
    return f"<answer>{messages[-1]['content']}</answer>"


async def main():
    async with FakeModelServer(answer_book) as server:
        make = lambda: AskExpert(base_url=server.base_url, price=(1.0, 2.0))  # noqa: E731
        async with EnvHost(make) as host:
            done = await evaluate(host, load_examples(ROWS, AskExpert), ScriptedModel(student), group_size=4)
            expert = host.env.expert
            print(f"reward {done.report.reward.mean:.2f} over {done.report.rollouts} rollouts")
            print(f"the expert: {expert.calls} calls, {expert.cached} cached, ${expert.usd:.6f}")
            print(f"a rollout: ${done.report.components['expert_usd'].mean:.7f}")


if __name__ == "__main__":
    asyncio.run(main())
