"""The environment of the user's own document, word for word."""

import re

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text


class MyEnv(BaseEnv):
    system_prompt = "answer the question concisely. put your answer in <answer> tags."

    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return ""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        match = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
        answer = match.group(1).strip().lower() if match else ""
        expected = (task or {}).get("ground_truth", "").strip().lower()
        return {"correct": 1.0 if answer == expected else 0.0}
