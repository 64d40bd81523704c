"""A model on this machine behind the model port, exact to the token: the engine samples what `TokenModel` asks for."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.errors import ModelError, UsageError
from benchmax.inference.engine.request import OnTokens
from benchmax.inference.engine.sampling import SamplingParams
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import Sampled, StopStrings, TokenModel
from benchmax.inference.weights.store import read_card, resolve
from benchmax.models.base import Sampling

if TYPE_CHECKING:
    from benchmax.inference.engine.engine import Engine

_SIZE_MISMATCH = re.compile(r"size mismatch for (\S+): .*?torch\.Size\((.*?)\).*?torch\.Size\((.*?)\)")


class LocalModel(TokenModel):
    """A model run by the engine in this process."""

    def __init__(self, engine: Engine, chat: ChatTokens, *, name: str = "local") -> None:
        super().__init__(chat, name=name, context=min(chat.context, engine.max_len))
        self.engine = engine

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        checkpoint: str | Path | None = None,
        device: str = "auto",
        dtype: str = "auto",
        name: str | None = None,
        **engine_options: Any,
    ) -> LocalModel:
        """Load a model by name, path or hub id; `checkpoint` is a trained directory, whole or adapter."""
        from benchmax.inference.engine.engine import Engine
        from benchmax.inference.weights.llama import ModelSpec

        directory = resolve(name_or_path)
        weights = _weights_directory(directory, checkpoint)
        has_tokenizer = (weights / "tokenizer_config.json").is_file()
        ModelSpec.from_directory(weights)  # raises a clear error for a damaged config, before transformers reads it
        chat = ChatTokens(weights if has_tokenizer else directory)
        engine = Engine.from_directory(weights, device=device, dtype=dtype, **engine_options)
        if checkpoint is not None and weights == directory:
            engine.update_weights(_adapted_weights(directory, Path(checkpoint)))
        return cls(engine, chat, name=name or _name(name_or_path, directory, checkpoint))

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling = Sampling(), *, on_tokens: OnTokens | None = None
    ) -> Sampled:
        """Sample what follows the ids of `prompt`."""
        room = self.room(prompt)
        params = SamplingParams(
            max_tokens=min(room, sampling.max_tokens or room),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            stop_token_ids=self.chat.stop_ids,
        )
        stops = StopStrings(self.chat, sampling.stop) if sampling.stop else None
        drawn = await self.engine.generate(prompt, params, should_stop=stops, on_tokens=on_tokens)
        if any(map(math.isnan, drawn.logprobs)):
            raise ModelError(
                f"The logits of {self.name} are not finite numbers, so what it samples means nothing: its weights are "
                "broken. Go back to an earlier checkpoint, or pull the model again."
            )
        text = self.chat.decode(drawn.ids)
        return Sampled(list(drawn.ids), list(drawn.logprobs), stops.cut(text) if stops else text, drawn.finish)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.engine.close)


def _weights_directory(directory: Path, checkpoint: str | Path | None) -> Path:
    """Where the weights are: in the checkpoint when it is whole, in the model's directory when it is an adapter."""
    if checkpoint is None or (Path(checkpoint) / "adapter_config.json").is_file():
        return directory
    if not (Path(checkpoint) / "config.json").is_file():
        raise UsageError(
            f"{checkpoint} is neither a model nor an adapter folder. "
            "Write one from a run with: benchmax export RUN FOLDER --adapter"
        )
    return resolve(checkpoint)


def _adapted_weights(directory: Path, adapter: Path) -> dict[str, Any]:
    """The model's weights with the adapter merged in."""
    import torch
    from peft import PeftModel
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # the caller reports progress
    if not any(adapter.glob("adapter_model.*")):  # peft would look for them on the model hub
        raise UsageError(f"The adapter in {adapter} has no weights. Copy or export it again.")
    base = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    try:
        merged = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    except (KeyError, TypeError, json.JSONDecodeError, SafetensorError) as error:
        reason = str(error).splitlines()[0][:200]
        raise UsageError(f"The adapter in {adapter} is damaged: {reason}. Copy or export it again.") from error
    except (ValueError, RuntimeError, OSError) as error:
        raise UsageError(
            f"The adapter in {adapter} does not fit this model: {_misfit(error)}. Give the model it was trained on."
        ) from error
    return dict(merged.named_parameters())


def _misfit(error: Exception) -> str:
    """peft's error in one line: of all the tensors that do not fit, the first."""
    text = str(error)
    if found := _SIZE_MISMATCH.search(text):
        return "{} is {} in the adapter and {} here".format(*found.groups())
    return text.splitlines()[0][:200].rstrip(".")


def _name(name_or_path: str | Path, directory: Path, checkpoint: str | Path | None) -> str:
    """Its name, with the checkpoint, so that a trained model does not pass for its base."""
    card = read_card(directory)
    base = card.name if card else Path(name_or_path).name
    return f"{base}:{Path(checkpoint).resolve().name}" if checkpoint else base
