"""What the tests of Tinker train on: an environment that a model with random weights can learn, and such a model."""

from __future__ import annotations

from pathlib import Path

from benchmax import BaseEnv, metrics
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny

SOURCE = '''from benchmax import BaseEnv


class SmallLetters(BaseEnv):
    """The share of an answer's characters that are small letters."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = str(messages[-1]["content"])
        return {"small": sum("a" <= each <= "z" for each in text) / max(1, len(text))}
'''


class SmallLetters(BaseEnv):
    """The share of an answer's characters that are small letters."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = str(messages[-1]["content"])
        return {"small": sum("a" <= each <= "z" for each in text) / max(1, len(text))}


def task(rows: int = 12) -> Task:
    made = [SmallLetters.dataset_preprocess({"prompt": f"say {n}", "ground_truth": ""}) for n in range(rows)]
    return Task(SmallLetters, made[:8], made[8:])


def rewards(run: Path, split: str) -> list[float]:
    return [line["values"][metrics.REWARD] for line in read_metrics(run) if line["split"] == split]


def make_tiny_head(directory: Path) -> Path:
    """A tiny model with an output layer of its own, of larger weights.

    Where the output layer is the embedding, the logits of a small random model cannot become peaky by an adapter.
    """
    import torch
    from transformers import AutoModelForCausalLM

    make_tiny(directory, hidden=64, layers=1)
    model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)
    model.config.tie_word_embeddings = False
    weights = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(0))
    model.lm_head.weight = torch.nn.Parameter(0.2 * weights)
    model.save_pretrained(directory)
    return directory
