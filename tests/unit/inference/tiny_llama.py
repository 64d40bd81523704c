"""Small random models of the families the engine runs, and what transformers says about them."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

VOCAB = 512
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
FAMILIES = ("llama", "llama-untied", "llama-bias", "llama3-rope", "qwen2", "qwen3")


def _config(family: str) -> Any:
    if family == "qwen2":
        return Qwen2Config(**SHAPE, tie_word_embeddings=True)
    if family == "qwen3":
        return Qwen3Config(**SHAPE, head_dim=32, tie_word_embeddings=False)
    if family == "llama-bias":
        return LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
    if family == "llama3-rope":
        rope = {
            "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        }  # fmt: skip
        return LlamaConfig(**SHAPE, rope_parameters=rope, tie_word_embeddings=True)
    return LlamaConfig(**SHAPE, tie_word_embeddings=family == "llama")


def make(family: str = "llama", seed: int = 0) -> Any:
    """A fresh model with weights large enough that logits differ clearly."""
    torch.manual_seed(seed)
    config = _config(family)
    kind = {"qwen2": Qwen2ForCausalLM, "qwen3": Qwen3ForCausalLM}.get(family, LlamaForCausalLM)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.15)
    return model


shared = cache(make)
"""The same model for every test that does not change it."""


def prompts(count: int, longest: int = 40, seed: int = 0) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randrange(VOCAB) for _ in range(chance.randrange(1, longest))] for _ in range(count)]


def greedy(model: Any, prompt: list[int], new: int) -> list[int]:
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return out[0, len(prompt) :].tolist()


def is_greedy(model: Any, prompt: list[int], ids: list[int]) -> bool:
    """Whether each of `ids` is the likeliest after those before it, by one forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    return bool((logits.argmax(-1) == torch.tensor(ids)).all())


def logprobs(model: Any, prompt: list[int], ids: list[int], temperature: float) -> list[float]:
    """Log-probabilities of `ids` by one fresh forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids], device=model.device)).logits[0, len(prompt) - 1 : -1].float()
    table = (logits / (temperature or 1.0)).log_softmax(-1)
    return table.gather(1, torch.tensor(ids, device=model.device).unsqueeze(1)).squeeze(1).tolist()
