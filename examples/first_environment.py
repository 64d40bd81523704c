"""The smallest environment, measured with two scripted models and compared.

    python examples/first_environment.py

A scripted model needs no server, so everything here runs offline. Replace it by `HttpModel(name, base_url)` to measure
a real one; nothing else changes.
"""

import asyncio

from benchmax import BaseEnv, EnvHost, ScriptedModel, compare, evaluate, extract_completion_text, load_examples
from benchmax.envs.reward_helpers import exact_match

ROWS = [
    {"prompt": "Capital of France?", "ground_truth": "Paris"},
    {"prompt": "Capital of Italy?", "ground_truth": "Rome"},
    {"prompt": "Capital of Japan?", "ground_truth": "Tokyo"},
    {"prompt": "Capital of Peru?", "ground_truth": "Lima"},
]


class Capitals(BaseEnv):
    system_prompt = "Answer with the city alone."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": exact_match(extract_completion_text(messages), task["ground_truth"])}


async def main():
    examples = load_examples(ROWS, Capitals)
    one_city = ScriptedModel("Paris")
    all_cities = ScriptedModel.answers({row["prompt"]: f"{row['ground_truth']}." for row in ROWS})
    async with EnvHost(Capitals) as host:
        before = await evaluate(host, examples, one_city)
        after = await evaluate(host, examples, all_cities)
    print(f"one city    {before.report.reward.mean:.2f}")
    print(f"all cities  {after.report.reward.mean:.2f}")
    for pair in compare(before.rollouts, after.rollouts).pairs:
        print(f"{pair.delta:+.2f}  {pair.base_rollouts[0].task['prompt']}")


if __name__ == "__main__":
    asyncio.run(main())
