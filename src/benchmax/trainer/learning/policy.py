"""The model being trained: a transformers model, with a peft adapter or with all weights free.

Weights are float32 masters; on CUDA the products run in bfloat16. The sampler gets its weights pushed: with LoRA those
are `W + scale·B·A`, computed fresh from the untouched base each time, so nothing rounds itself away over the steps.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmax.errors import ConfigError, UsageError
from benchmax.memory import out_of_memory
from benchmax.trainer.config import LoraConfig
from benchmax.trainer.learning.batch import MicroBatch
from benchmax.trainer.learning.loss import select_logprobs


class Policy:
    """A causal language model with trainable weights."""

    def __init__(self, model: Any, *, tune: str, lora: LoraConfig, temperature: float = 1.0) -> None:
        self.tune = tune
        self.temperature = temperature
        self.peft = _adapt(model, lora) if tune == "lora" else None
        self.model = self.peft.get_base_model() if self.peft is not None else model
        self.decoder = self.model.get_decoder()
        self.head = self.model.get_output_embeddings()
        self.device: torch.device = next(self.model.parameters()).device
        self.has_dropout = any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.model.modules())
        """Whether two passes over the same tokens differ."""
        self._frozen: Any = None
        self.model.train()

    @classmethod
    def from_directory(
        cls,
        path: Path | str,
        *,
        tune: str = "lora",
        lora: LoraConfig | None = None,
        device: str = "cpu",
        temperature: float = 1.0,
        gradient_checkpointing: bool = False,
    ) -> Policy:
        """Load a model directory as float32 and make it trainable."""
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()  # our own view tells what happens
        try:
            model = AutoModelForCausalLM.from_pretrained(str(path), dtype=torch.float32, attn_implementation="sdpa")
        except (RuntimeError, ValueError) as error:
            if out_of_memory(error):
                raise
            reason = str(error).strip().splitlines()[0][:200].rstrip(".")
            raise UsageError(f"{path} cannot be loaded: {reason}. Copy or save the model again.") from error
        model.config.use_cache = False
        policy = cls(model.to(device), tune=tune, lora=lora or LoraConfig(), temperature=temperature)
        if gradient_checkpointing:
            # What is computed again in the backward pass needs the kernels of the forward one.
            policy.model.gradient_checkpointing_enable(
                {"use_reentrant": False, "context_fn": lambda: (contextlib.nullcontext(), _kernels(policy.device))}
            )
        return policy

    def parameters(self) -> dict[str, nn.Parameter]:
        """The trainable weights by name."""
        return {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}

    def size(self) -> int:
        """Parameters of the model, adapter not counted."""
        return sum(weight.numel() for name, weight in self.model.named_parameters() if ".lora_" not in name)

    @property
    def vocabulary(self) -> int:
        """Tokens it chooses from."""
        return int(self.model.config.get_text_config().vocab_size)

    def logprobs(self, micro: MicroBatch, temperature: float | None = None) -> tuple[Tensor, Tensor]:
        """Log-prob of each loss token, and the entropy at each query position; at the sampler's temperature if none."""
        temperature = self.temperature if temperature is None else temperature
        with _precision(self.device):
            output = self.decoder(
                input_ids=micro.input_ids,
                attention_mask=micro.mask,
                position_ids=micro.position_ids,
                use_cache=False,
            )
            hidden = output.last_hidden_state.flatten(0, 1)[micro.query]
            logits = self.head(hidden)
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        if cap:
            logits = torch.tanh(logits.float() / cap) * cap
        if temperature != 1.0:
            logits = logits.float() / temperature
        return select_logprobs(logits, micro.slot, micro.target)

    @contextlib.contextmanager
    def exact(self) -> Iterator[None]:
        """Without dropout, for the time of the block."""
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()

    def keep_base(self) -> None:
        """Hold what `base` needs; with LoRA that is nothing, for all weights it is a frozen copy."""
        if self.peft is None and self._frozen is None:
            self._frozen = copy.deepcopy(self.model).requires_grad_(False).eval()

    @contextlib.contextmanager
    def base(self) -> Iterator[None]:
        """The model as it was before training, for the time of the block."""
        if self.peft is not None:
            with self.peft.disable_adapter():
                yield
            return
        assert self._frozen is not None, "call keep_base() before the first update"
        kept = self.decoder, self.head
        self.decoder, self.head = self._frozen.get_decoder(), self._frozen.get_output_embeddings()
        try:
            yield
        finally:
            self.decoder, self.head = kept

    @torch.no_grad()
    def sampler_weights(self) -> dict[str, Tensor]:
        """What the sampler must take over since it last saw the base: by the model's own parameter names."""
        if self.peft is None:
            return {name: weight.detach() for name, weight in self.model.named_parameters()}
        return {f"{name}.weight": merged_weight(layer) for name, layer in self.adapted()}

    def adapted(self) -> Iterator[tuple[str, Any]]:
        """The layers that carry an adapter, by the name of the layer they wrap."""
        return _lora_layers(self.model)


@contextlib.contextmanager
def _precision(device: torch.device) -> Iterator[None]:
    """bfloat16 products on CUDA, and the kernels that go with them."""
    if device.type != "cuda":
        yield
        return
    with torch.autocast("cuda", torch.bfloat16), _kernels(device):
        yield


@contextlib.contextmanager
def _kernels(device: torch.device) -> Iterator[None]:
    """On CUDA, an attention kernel that is not planned anew for every shape."""
    if device.type != "cuda":
        yield
        return
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        yield


def merged_weight(layer: Any) -> Tensor:
    """`W + scale·B·A` of an adapted linear layer."""
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    merged: Tensor = torch.addmm(layer.get_base_layer().weight, up, down, alpha=layer.scaling["default"])
    return merged


def _adapt(model: Any, lora: LoraConfig) -> Any:
    import peft

    targets: Any = lora.targets[0] if lora.targets == ["all-linear"] else lora.targets
    settings = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets, task_type="CAUSAL_LM"
    )
    advice = "Use all-linear, or the names of its linear layers."
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")  # refused below
            adapted = peft.get_peft_model(model, settings)
    except ValueError as error:
        raise ConfigError(f"lora.targets {lora.targets} does not fit this model: {error} {advice}") from None
    base = adapted.get_base_model()
    for name, layer in _lora_layers(base):
        if not isinstance(layer.get_base_layer(), nn.Linear):
            raise ConfigError(f"lora.targets {lora.targets} names {name}, which is no linear layer. {advice}")
        if layer.get_base_layer().weight is base.get_input_embeddings().weight:
            raise ConfigError(
                f"lora.targets {lora.targets} names {name}, whose weight is also the input embedding in this model: "
                "an adapter would change only one of the two. Leave it out, or train with model.tune = 'full'."
            )
    return adapted


def _lora_layers(model: Any) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))
