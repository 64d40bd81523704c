"""What samples in TRL: its vLLM, or the model that is being trained. Called in the trainer's thread, with a batch.

The log-probability of a token is that of `softmax(logits / temperature)` over the whole vocabulary, as TRL's loss and
our own trainer compute it, whatever top-p and top-k leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmax.adapters.batched_engine import Generate
from benchmax.adapters.engine_model import Ask, Drawn
from benchmax.errors import UsageError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Sampling


def sampling_of(trainer: Any) -> Sampling:
    """How the trainer's arguments say that a turn is sampled."""
    return Sampling(
        temperature=trainer.temperature,
        top_p=trainer.top_p,
        top_k=trainer.top_k or None,
        max_tokens=trainer.max_completion_length,
        logprobs=True,
    )


def generate_with(trainer: Any, chat: ChatTokens) -> Generate:
    """The trainer's own generation, for a batch of turns."""
    if trainer.accelerator.num_processes > 1:
        _refuse_shared_engine(trainer)
    return partial(_by_vllm if trainer.use_vllm else _by_model, trainer, chat)


def _refuse_shared_engine(trainer: Any) -> None:
    """Refuse what all processes must ask equally often, which rollouts of different lengths do not."""
    if trainer.use_vllm:
        vllm = trainer.vllm_generation
        if vllm.mode == "server" or getattr(vllm, "tensor_parallel_size", 1) > 1:
            raise UsageError(
                "With several training processes, rollouts need a vLLM for each: set vllm_mode='colocate' and "
                "vllm_tensor_parallel_size=1, or give BenchmaxRollouts a `sample` function that asks your server."
            )
    elif trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise UsageError(
            "A model sharded over several processes cannot generate for one of them alone: set use_vllm=True with "
            "vllm_mode='colocate', or give BenchmaxRollouts a `sample` function that asks your server."
        )


def _by_vllm(trainer: Any, chat: ChatTokens, asks: Sequence[Ask]) -> list[Drawn]:
    """One call for the batch; its limit is the largest asked for, so longer turns are cut afterwards."""
    vllm = trainer.vllm_generation
    before, vllm.max_completion_length = vllm.max_completion_length, _most(asks)
    try:
        _, ids, logprobs, _ = vllm.generate(prompts=[ask.prompt for ask in asks], images=None, num_generations=1)
    finally:
        vllm.max_completion_length = before
    own = [[each[0] for each in turn] for turn in logprobs]  # the sampled token's comes first
    return [_drawn(chat, ask, *each) for ask, *each in zip(asks, ids, own, strict=True)]


def _by_model(trainer: Any, chat: ChatTokens, asks: Sequence[Ask]) -> list[Drawn]:
    import torch
    from transformers import GenerationConfig
    from trl.models.utils import unwrap_model_for_generation

    device = trainer.accelerator.device
    ids, mask = _left_padded([ask.prompt for ask in asks], chat.stop_ids[0])
    settings = {**trainer.generation_config.to_dict(), "max_new_tokens": _most(asks)}
    recorder = LogprobRecorder(settings.get("temperature") or 1.0)
    opened = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator)
    with opened as model, torch.no_grad():
        whole = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            generation_config=GenerationConfig(**settings),
            logits_processor=[recorder],
        )
    turns = whole[:, ids.shape[1] :]
    logprobs = recorder.finish(whole).cpu().tolist()
    return [_drawn(chat, ask, *each) for ask, *each in zip(asks, turns.cpu().tolist(), logprobs, strict=True)]


class LogprobRecorder:
    """A logits processor that changes nothing, and keeps the log-probability of every token drawn.

    It comes before temperature, top-k and top-p. A token is known at the next call, so one step's distribution is
    kept, not that of the whole turn.
    """

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._last: Any = None
        self._found: list[Any] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self._note(input_ids)
        self._last = (scores.float() / self._temperature).log_softmax(-1)
        return scores

    def _note(self, input_ids: Any) -> None:
        if self._last is not None:
            self._found.append(self._last.gather(-1, input_ids[:, -1:]))

    def finish(self, input_ids: Any) -> Any:
        """[rows, tokens]: all of them, once the last token is known."""
        import torch

        self._note(input_ids)
        return torch.cat(self._found, dim=-1)


def _left_padded(prompts: Sequence[list[int]], filler: int) -> tuple[Any, Any]:
    import torch

    longest = max(map(len, prompts))
    ids = [[filler] * (longest - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids), torch.tensor(mask)


def _most(asks: Sequence[Ask]) -> int:
    return max(ask.sampling.max_tokens or 1 for ask in asks)


def _drawn(chat: ChatTokens, ask: Ask, ids: list[int], logprobs: Sequence[float | None]) -> Drawn:
    """The turn up to its end-of-turn token, or to the limit of the ask."""
    ends = [index for index, token in enumerate(ids) if token in chat.stop_ids]
    size = min(ends[0] + 1 if ends else len(ids), ask.sampling.max_tokens or len(ids))
    stopped = bool(ends) and size == ends[0] + 1
    return Drawn(ids[:size], list(logprobs[:size]), "stop" if stopped else "length")
