"""A supervised warm start: show the model good answers before it searches for better ones.

Rows are chats that end with an assistant turn (`messages`), or a `prompt` with a `completion` (or `ground_truth`). Only
the answer is learned; the prompt is context. The tokens go through the same packing as rollouts do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmax.envs.types import Messages
from benchmax.errors import DatasetError, ModelRejected
from benchmax.inference.tokens import ChatTokens
from benchmax.trainer.batch import Batch, TokenSequence
from benchmax.trainer.config import OptimConfig, SftConfig
from benchmax.trainer.optim import Optimizer
from benchmax.trainer.policy import Policy

OnStep = Callable[[int, int, float], None]
"""Told the step, the number of steps and the loss."""


def sft_sequences(rows: Iterable[Mapping[str, Any]], chat: ChatTokens) -> list[TokenSequence]:
    """The rows as token sequences; every unusable row is named."""
    sequences, issues = [], []
    for number, row in enumerate(rows, start=1):
        try:
            prompt, answer = split_chat(row)
            sequences.append(_sequence(chat, prompt, answer))
        except (KeyError, TypeError, ValueError, ModelRejected) as error:
            issues.append(f"row {number}: {error}")
    if issues or not sequences:
        shown = "; ".join(issues[:5]) or "there are none"
        raise DatasetError(f"Rows for the warm start cannot be used: {shown}. Give `messages` ending with an "
                           "assistant turn, or `prompt` and `completion`.", issues)  # fmt: skip
    return sequences


def split_chat(row: Mapping[str, Any]) -> tuple[Messages, str]:
    """A row's prompt and the answer to learn."""
    messages = row.get("messages") or row.get("prompt_messages")
    if messages:
        last = messages[-1] if isinstance(messages, list) else None
        if not isinstance(last, Mapping) or last.get("role") != "assistant" or not isinstance(last.get("content"), str):
            raise ValueError("`messages` does not end with an assistant turn")
        return list(messages[:-1]), last["content"]
    prompt = row.get("prompt")
    answer = row.get("completion", row.get("ground_truth"))
    if not isinstance(prompt, str | list) or not prompt or answer is None:
        raise ValueError("neither `messages` nor `prompt` with `completion`")
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt), str(answer)


def warm_start(
    policy: Policy,
    sequences: Sequence[TokenSequence],
    config: SftConfig,
    *,
    lr: float,
    token_budget: int,
    row_tokens: int,
    seed: int = 0,
    on_step: OnStep = lambda step, steps, loss: None,
) -> list[float]:
    """Train on the sequences; gives the loss of each step."""
    batches = [
        order[start : start + config.batch]
        for epoch in range(config.epochs)
        for order in [random.Random(f"{seed} sft {epoch}").sample(list(sequences), len(sequences))]
        for start in range(0, len(sequences), config.batch)
    ]
    optimizer = Optimizer(policy.parameters(), OptimConfig(schedule="linear"), lr=config.lr or lr, total=len(batches))
    losses: list[float] = []
    for step, chosen in enumerate(batches):
        batch = Batch.of(chosen)
        weight = batch.weights("token", 1).to(policy.device)
        total = torch.zeros((), device=policy.device)
        for micro in batch.micro_batches(token_budget, row_tokens):
            micro = micro.to(policy.device)
            loss = -(policy.logprobs(micro)[0] * weight[micro.token]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        optimizer.step()
        losses.append(total.item())
        on_step(step, len(batches), losses[-1])
    return losses


def _sequence(chat: ChatTokens, prompt: Messages, answer: str) -> TokenSequence:
    asked = chat.prompt(prompt)
    said = [*chat.encode(answer), chat.stop_ids[0]]
    ids = np.asarray(asked + said, np.int64)
    targets = np.arange(len(asked), len(ids))
    return TokenSequence(ids, targets, np.full(len(said), np.nan, np.float32), 1.0)
