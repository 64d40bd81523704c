"""Small models for TRL on a CPU: one with random weights, and one that was taught to call a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import trl
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig

from trainer_world import Template, tokenizer

QWEN3 = Template(
    "qwen3", (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(), "<|im_end|>", True
)


def model(encode: Any, *, hidden: int = 32, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(encode), hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=16, max_position_embeddings=4096,
        eos_token_id=encode.eos_token_id, pad_token_id=encode.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def arguments(folder: Path, **changes: Any) -> GRPOConfig:
    base: dict[str, Any] = {
        "output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": [], "num_generations": 4,
        "per_device_train_batch_size": 4, "max_completion_length": 256, "max_steps": 2, "logging_steps": 1,
        "learning_rate": 1e-3, "save_strategy": "no", "disable_tqdm": True, "temperature": 1.0,
    }  # fmt: skip
    return GRPOConfig(**{**base, **changes})


def teach(student: Any, conversations: list[tuple[list[int], list[int]]], steps: int = 150) -> None:
    """Supervised steps on (ids, mask) until the model writes these turns by itself."""
    longest = max(len(ids) for ids, _ in conversations)
    ids = torch.zeros(len(conversations), longest, dtype=torch.long)
    wanted = torch.full_like(ids, -100)
    for row, (each, mask) in enumerate(conversations):
        ids[row, : len(each)] = torch.tensor(each)
        wanted[row, : len(each)] = torch.where(torch.tensor(mask) == 1, torch.tensor(each), -100)
    torch.set_num_threads(1)  # spinning for a second core costs more than it brings
    optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = student(input_ids=ids, labels=wanted).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.01:
            break


__all__ = ["QWEN3", "arguments", "model", "teach", "tokenizer"]
