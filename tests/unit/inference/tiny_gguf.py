"""A Llama of a few thousand weights as a GGUF file, with SmolLM2's chat template and one token per byte."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import quantize

Q4_1 = gguf.GGMLQuantizationType.Q4_1
HIDDEN, HEADS, KV_HEADS, LAYERS, INNER = 64, 4, 2, 2, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokens() -> list[str]:
    """The 256 letters of byte-level BPE, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


TOKENS = [*SPECIAL, *byte_tokens(), "12", "Ġ3", "he", "ll", "hell", "ĊĊ"]
MERGES = ["1 2", "Ġ 3", "h e", "l l", "he ll", "Ċ Ċ"]


def hf_weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * 0.3).astype(np.float32)

    head = HIDDEN // HEADS
    weights = {"model.embed_tokens.weight": weight(len(TOKENS), HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        weights[name + "input_layernorm.weight"] = np.ones(HIDDEN, np.float32)
        weights[name + "self_attn.q_proj.weight"] = weight(HIDDEN, HIDDEN)
        weights[name + "self_attn.k_proj.weight"] = weight(KV_HEADS * head, HIDDEN)
        weights[name + "self_attn.v_proj.weight"] = weight(KV_HEADS * head, HIDDEN)
        weights[name + "self_attn.o_proj.weight"] = weight(HIDDEN, HIDDEN)
        weights[name + "post_attention_layernorm.weight"] = np.ones(HIDDEN, np.float32)
        weights[name + "mlp.gate_proj.weight"] = weight(INNER, HIDDEN)
        weights[name + "mlp.up_proj.weight"] = weight(INNER, HIDDEN)
        weights[name + "mlp.down_proj.weight"] = weight(HIDDEN, INNER)
    weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    return weights


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    extra: dict[str, Any] | None = None,
    quantised: bool = False,
    layers: int = LAYERS,
    without: Collection[str] = (),
) -> Path:
    """The weights of `hf_weights`, as llama.cpp's own converter stores them; `quantised`, the matrices are Q4_1.

    `without` names tensors the file lacks, and `layers` is how many it says it has.
    """
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("Tiny")
    writer.add_license("mit")
    writer.add_block_count(layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)  # wrong on purpose: the template ends turns with <|im_end|>
    writer.add_chat_template(TEMPLATE)
    for name, value in (extra or {}).items():
        writer.add_string(name, value)
    for name, weight in hf_weights().items():
        if gguf_name(name) in without:
            continue
        heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
        weight = _permute(weight, heads) if heads else weight
        if quantised and weight.ndim == 2:
            writer.add_tensor(gguf_name(name), quantize(weight, Q4_1), raw_dtype=Q4_1)
        else:
            writer.add_tensor(gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    for ours, theirs in {
        "model.layers.": "blk.",
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
        "self_attn.": "attn_",
        "mlp.": "ffn_",
        "_proj": "",
    }.items():
        name = name.replace(ours, theirs)
    return name


def _permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows of a rotary projection."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
