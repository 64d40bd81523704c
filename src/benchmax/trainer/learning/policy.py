"""The model being trained: a transformers model, with a peft adapter or with all weights free.

Master weights are float32; on CUDA matrix products run in bfloat16. The weights pushed to the sampler are, with LoRA,
`W + scale·B·A`, computed from the unchanged base each time, so rounding errors do not add up over the steps.
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

        logging.disable_progress_bar()  # the trainer has a view of its own
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
            # The recomputation in the backward pass needs the kernels of the forward pass.
            policy.model.gradient_checkpointing_enable(
                {"use_reentrant": False, "context_fn": lambda: (contextlib.nullcontext(), _kernels(policy.device))}
            )
        return policy

    def parameters(self) -> dict[str, nn.Parameter]:
        """The trainable weights by name."""
        return {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}

    def copy_weights(self) -> dict[str, Tensor]:
        """A copy of the trainable weights."""
        return {name: weight.detach().clone() for name, weight in self.parameters().items()}

    def size(self) -> int:
        """Number of the model's parameters, without the adapter's."""
        return sum(weight.numel() for name, weight in self.model.named_parameters() if ".lora_" not in name)

    @property
    def vocabulary(self) -> int:
        """Number of tokens it chooses from."""
        return int(self.model.config.get_text_config().vocab_size)

    def logprobs(self, micro: MicroBatch, temperature: float | None = None) -> tuple[Tensor, Tensor]:
        """Log-prob of each loss token and entropy at each query position; the default temperature is the sampler's."""
        temperature = self.temperature if temperature is None else temperature
        # On CUDA, bfloat16 products and the kernels that go with them.
        autocast = torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else contextlib.nullcontext()
        with autocast, _kernels(self.device):
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
        """Switch dropout off for the time of the block."""
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()

    def keep_base(self) -> None:
        """Keep what `base` needs: nothing with LoRA, a frozen copy when all weights are trained."""
        if self.peft is None and self._frozen is None:
            self._frozen = copy.deepcopy(self.model).requires_grad_(False).eval()

    @contextlib.contextmanager
    def base(self) -> Iterator[None]:
        """Use the model as it was before training, for the time of the block."""
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
        """The weights that differ from the base model's, by the model's own parameter names."""
        if self.peft is None:
            return {name: weight.detach() for name, weight in self.model.named_parameters()}
        return {f"{name}.weight": merged_weight(layer) for name, layer in _lora_layers(self.model)}


def _kernels(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """On CUDA, attention kernels that are not planned anew for every shape."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


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
    """The layers that carry an adapter, by the name of the layer they wrap."""
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))
