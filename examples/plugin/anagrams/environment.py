"""An environment: unscramble a word."""

import random

from benchmax import BaseEnv, extract_completion_text

LETTERS = """
apple bread chair dance eagle flame grape house ivory
jelly knife lemon mouse north ocean piano queen river
"""
WORDS = LETTERS.split()


class AnagramEnv(BaseEnv):
    """Find the word whose letters were shuffled."""

    system_prompt = "Unscramble the letters. Reply with the word in <word> tags."

    @classmethod
    def load_dataset(cls, dataset_name: str = "", **kwargs):
        draw = random.Random(0)
        rows = [{"prompt": "".join(draw.sample(word, len(word))), "ground_truth": word} for word in WORDS]
        return rows, None

    @classmethod
    def gold_completion(cls, example):
        return f"<word>{example['task']['ground_truth']}</word>"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(extract_completion_text(messages).strip() == f"<word>{task['ground_truth']}</word>")}
