"""Converts a GGUF file into a plain Hugging Face directory, with the `gguf` package's reader and dequantisers.

Weights are dequantised to fp32, so that training starts from the very numbers in the file. llama.cpp interleaves the
rows of the query and key projections for its rotary kernel; that is undone here. The result loads offline with
`AutoModelForCausalLM.from_pretrained(directory)`. transformers' own reader of GGUF files is not used: it does not see
a damaged or incomplete file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmax import extras
from benchmax.errors import UsageError
from benchmax.inference.tokens.tokenizer import write_tokenizer
from benchmax.inference.weights.llama import ModelSpec, Weights

Array = npt.NDArray[Any]

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE_TYPES = ("F64", "F32", "F16", "BF16")
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_REQUIRED = (
    "general.architecture",
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.layer_norm_rms_epsilon",
    "tokenizer.ggml.model",
    "tokenizer.ggml.tokens",
)


@dataclass(frozen=True, slots=True)
class Facts:
    """The file's own description of the model."""

    title: str
    license: str
    parameters: int
    quantisation: str
    """The type of most of its weights, such as Q4_1; empty when they are not quantised."""


class GGUF:
    """An opened GGUF file: its metadata, and its tensors one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _whole(path):
            self._reader = _open(path)
            self.meta: dict[str, Any] = {name: field.contents() for name, field in self._reader.fields.items()}
        self._check()
        with _whole(path):
            self._check_tensors()

    def _check(self) -> None:
        architecture = self.meta.get("general.architecture")
        if architecture != "llama":
            raise UsageError(f"{self.path} holds a {architecture!r} model; only 'llama' GGUF files can be converted.")
        missing = [key for key in _REQUIRED if key not in self.meta]
        if missing:
            raise UsageError(f"{self.path} lacks {', '.join(missing)}. Download it again, or take another file.")
        scaling = self.meta.get("llama.rope.scaling.type", "none")
        if scaling != "none" or any(tensor.name == "rope_freqs.weight" for tensor in self._reader.tensors):
            raise UsageError(f"{self.path} scales its positions (rope): not converted. Use a Hugging Face copy.")

    def _check_tensors(self) -> None:
        there = {tensor.name for tensor in self._reader.tensors}
        lacking = next((name for name in _needed(int(self.meta["llama.block_count"])) if name not in there), None)
        if lacking:
            raise ValueError(f"it lacks the tensor {lacking}")

    @property
    def facts(self) -> Facts:
        parameters = sum(int(tensor.n_elements) for tensor in self._reader.tensors)
        return Facts(
            title=str(self.meta.get("general.name", self.path.stem)),
            license=str(self.meta.get("general.license", "unknown")),
            parameters=parameters,
            quantisation=self._quantisation(),
        )

    def _quantisation(self) -> str:
        sizes: Counter[str] = Counter()
        for tensor in self._reader.tensors:
            sizes[tensor.tensor_type.name] += int(tensor.n_elements)
        kind = max(sizes, key=lambda name: sizes[name], default="F32")
        return "" if kind in _WHOLE_TYPES else kind

    def tensors(self) -> Iterator[tuple[str, Array]]:
        """Every weight under its Hugging Face name, in fp32."""
        from gguf.quants import dequantize

        heads = int(self.meta["llama.attention.head_count"])
        kv_heads = int(self.meta.get("llama.attention.head_count_kv", heads))
        for tensor in self._reader.tensors:
            weight = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            if tensor.name.endswith("attn_q.weight"):
                weight = _unpermute(weight, heads)
            elif tensor.name.endswith("attn_k.weight"):
                weight = _unpermute(weight, kv_heads)
            yield self._hf_name(tensor.name), np.ascontiguousarray(weight)

    def _hf_name(self, name: str) -> str:
        if name in _TOP:
            return _TOP[name]
        match = _LAYER_NAME.fullmatch(name)
        if match and match[2] in _LAYER:
            return f"model.layers.{match[1]}.{_LAYER[match[2]]}.weight"
        raise UsageError(f"{self.path} holds the tensor {name!r}, unknown to a Llama model. Use a Hugging Face copy.")


def _needed(layers: int) -> Iterator[str]:
    """The tensors a model must have; lazily, since a damaged file may claim billions of layers."""
    yield "token_embd.weight"
    yield "output_norm.weight"
    for layer in range(layers):
        for name in _LAYER:
            yield f"blk.{layer}.{name}.weight"


def _open(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        raise UsageError(f"A GGUF file needs the package gguf. Run: {extras.install('train')}") from error

    class Reader(GGUFReader):  # type: ignore[misc]
        """Raises on reads past the end: with a damaged count the base class would loop for ever."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Array:
            found: Array = super()._get(offset, dtype, count, override_order)
            if len(found) != count:
                raise ValueError("it ends too early")
            return found

    return Reader(str(path))


def convert(path: Path, directory: Path) -> Facts:
    """Write the GGUF file at `path` into `directory` as a Hugging Face model."""
    from safetensors.numpy import save_file

    source = GGUF(path)
    with _whole(path):
        eos = write_tokenizer(source.meta, directory)
        config = _config(source.meta, eos)
        weights = dict(source.tensors())
        config["tie_word_embeddings"] = "lm_head.weight" not in weights
        config["vocab_size"] = len(weights["model.embed_tokens.weight"])
        _check_shapes(weights, config)
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", {k: config[k] for k in _TOKEN_IDS if k in config})
    target = directory / "model.safetensors"
    save_file(weights, str(target), metadata={"format": "pt"})
    target.chmod(0o644)  # safetensors writes 0600; a shared cache is read by others
    return source.facts


_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def _config(meta: Mapping[str, Any], eos: int) -> dict[str, Any]:
    heads = int(meta["llama.attention.head_count"])
    hidden = int(meta["llama.embedding_length"])
    theta = float(meta.get("llama.rope.freq_base", 10_000.0))
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(meta.get("llama.attention.key_length", hidden // heads)),
        "hidden_act": "silu",
        "max_position_embeddings": int(meta["llama.context_length"]),
        # The file holds the nearest float32; its shortest spelling is the number the model was trained with.
        "rms_norm_eps": float(str(np.float32(meta["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
        "eos_token_id": eos,
        "pad_token_id": eos,
    }
    if "tokenizer.ggml.bos_token_id" in meta:
        config["bos_token_id"] = int(meta["tokenizer.ggml.bos_token_id"])
    return config


def _check_shapes(weights: Mapping[str, Array], config: Mapping[str, Any]) -> None:
    """Raise ValueError unless the weights have the shapes of such a model."""
    import torch

    shapes = Weights(ModelSpec.from_config(config), torch.device("meta"), torch.float32).shapes
    strange = next((name for name, weight in weights.items() if weight.shape != shapes.get(name)), None)
    if strange:
        raise ValueError(f"{strange} does not fit the sizes that the file names")


def _unpermute(weight: Array, heads: int) -> Array:
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turn any error of a reader into one line about a damaged file; a full disk is not one."""
    try:
        yield
    except (UsageError, OSError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UsageError(f"{path} is not a whole GGUF file ({reason}). Download it again.") from error
