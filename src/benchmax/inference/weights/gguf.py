"""Converts a GGUF file into a plain Hugging Face directory, with the `gguf` package's reader and dequantisers.

Weights are dequantised to fp32, so that training starts from the very numbers in the file. llama.cpp interleaves the
rows of the query and key projections for its rotary kernel; that is undone here. The result loads offline with
`AutoModelForCausalLM.from_pretrained(directory)`. transformers' own reader of GGUF files is not used: it does not see
a damaged or incomplete file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmax import extras
from benchmax.errors import UsageError
from benchmax.files.atomic import write_json
from benchmax.inference.weights.llama import ModelSpec, Weights

Array = npt.NDArray[Any]

_UNQUANTISED = ("F64", "F32", "F16", "BF16")
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

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SPLITS = {"smollm": "digits", "gpt-2": "", "llama-bpe": _LLAMA3, "qwen2": _QWEN2}
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>")
_CONTROL = 3
"""The token type of control tokens in GGUF."""
_USER_DEFINED = 4


class GGUF:
    """An opened GGUF file: its metadata, and its tensors one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _naming_damage(path):
            reader = _open(path)
            self.meta: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
            self.tensors: dict[str, Any] = {tensor.name: tensor for tensor in reader.tensors}
        self._check()

    def _check(self) -> None:
        architecture = self.meta.get("general.architecture")
        if architecture != "llama":
            raise UsageError(f"{self.path} holds a {architecture!r} model; only 'llama' GGUF files can be converted.")
        missing = [key for key in _REQUIRED if key not in self.meta]
        if missing:
            raise UsageError(f"{self.path} lacks {', '.join(missing)}. Download it again, or take another file.")
        scaling = self.meta.get("llama.rope.scaling.type", "none")
        if scaling != "none" or "rope_freqs.weight" in self.tensors:
            raise UsageError(f"{self.path} scales its positions (rope): not converted. Use a Hugging Face copy.")

    @property
    def facts(self) -> dict[str, Any]:
        """The file's own description of the model, as a `store.Card` has it."""
        sizes: Counter[str] = Counter()
        for tensor in self.tensors.values():
            sizes[tensor.tensor_type.name] += int(tensor.n_elements)
        most = max(sizes, key=lambda name: sizes[name], default="F32")
        return {
            "title": str(self.meta.get("general.name", self.path.stem)),
            "license": str(self.meta.get("general.license", "unknown")),
            "parameters": sizes.total(),
            "quantisation": "" if most in _UNQUANTISED else most,
        }

    def weights(self, config: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
        """Every weight of such a model under its Hugging Face name, in fp32; raises unless the file has just these."""
        from gguf import MODEL_ARCH, get_tensor_name_map
        from gguf.quants import dequantize

        names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
        heads = {"q.weight": config["num_attention_heads"], "k.weight": config["num_key_value_heads"]}
        left = set(self.tensors)
        for name, shape in _shapes(config).items():
            own = names.get_name(name, try_suffixes=(".weight",))
            tensor = self.tensor(own)
            left.remove(own)
            weight = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            if weight.shape != shape:
                raise ValueError(f"{name} does not fit the sizes that the file names")
            if interleaved := heads.get(own.rpartition(".attn_")[2]):
                weight = _unpermute(weight, interleaved)
            yield name, np.ascontiguousarray(weight)
        if left:
            raise UsageError(
                f"{self.path} holds the tensor {min(left)!r}, unknown to a Llama model of the sizes that it names. "
                "Use a Hugging Face copy."
            )

    def tensor(self, name: str) -> Any:
        """A tensor of the file by its own name."""
        if name not in self.tensors:
            raise ValueError(f"it lacks the tensor {name}")
        return self.tensors[name]


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


def convert(path: Path, directory: Path) -> dict[str, Any]:
    """Write the GGUF file at `path` into `directory` as a Hugging Face model; returns its `facts`."""
    from safetensors.numpy import save_file

    source = GGUF(path)
    with _naming_damage(path):
        eos = _write_tokenizer(source.meta, directory)
        config = _config(source, eos)
        weights = dict(source.weights(config))
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json", {k: config[k] for k in _TOKEN_IDS if k in config})
    target = directory / "model.safetensors"
    save_file(weights, str(target), metadata={"format": "pt"})
    target.chmod(0o644)  # safetensors writes 0600; a shared cache is read by others
    return source.facts


_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def _config(source: GGUF, eos: int) -> dict[str, Any]:
    meta = source.meta
    heads, hidden = int(meta["llama.attention.head_count"]), int(meta["llama.embedding_length"])
    theta = float(meta.get("llama.rope.freq_base", 10_000.0))
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(source.tensor("token_embd.weight").shape[-1]),
        "tie_word_embeddings": "output.weight" not in source.tensors,
        "hidden_size": hidden,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        # A damaged file may claim billions of layers: the first that it lacks is named then.
        "num_hidden_layers": min(int(meta["llama.block_count"]), len(source.tensors)),
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


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of such a model, by its Hugging Face name."""
    import torch

    shapes = Weights(ModelSpec.from_config(config), torch.device("meta"), torch.float32).shapes
    if config["tie_word_embeddings"]:
        del shapes["lm_head.weight"]
    return shapes


def _unpermute(weight: Array, heads: int) -> Array:
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    """Turn any error of a reader into one line about a damaged file; a full disk is not one."""
    try:
        yield
    except (UsageError, OSError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UsageError(f"{path} is not a whole GGUF file ({reason}). Download it again.") from error


# The tokenizer: byte-level BPE with the model's own way of splitting text


def _write_tokenizer(meta: Mapping[str, Any], directory: Path) -> int:
    """Write the tokenizer files into `directory`; returns the id of the token that ends a turn.

    How text is split before the merges apply is not in the file, only its name (`tokenizer.ggml.pre`). SmolLM2 was
    trained with every digit on its own; a tokenizer that ignores it makes `345` a token the model has never seen.
    """
    _tokenizer(meta).save(str(directory / "tokenizer.json"))
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    template = str(meta.get("tokenizer.chat_template", ""))
    eos = _turn_end(meta, tokens, template)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(meta.get("llama.context_length", 0)) or None,
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[eos],
        "pad_token": tokens[eos],
    }
    for name, key in (("bos_token", "bos_token_id"), ("unk_token", "unknown_token_id")):
        if f"tokenizer.ggml.{key}" in meta:
            config[name] = tokens[int(meta[f"tokenizer.ggml.{key}"])]
    write_json(directory / "tokenizer_config.json", config)
    if template:
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    return eos


def _tokenizer(meta: Mapping[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    kind, split = meta["tokenizer.ggml.model"], meta.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or split not in _SPLITS:
        raise UsageError(
            f"This GGUF file has a {kind!r} tokenizer split as {split!r}, which is not converted "
            f"(known: gpt2 with {', '.join(_SPLITS)}). Use a Hugging Face copy of the model."
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in meta.get("tokenizer.ggml.merges", ())]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, fuse_unk=False, ignore_merges=split == "llama-bpe"))
    tokenizer.pre_tokenizer = _pre_tokenizer(_SPLITS[split])
    tokenizer.decoder = decoders.ByteLevel()
    types = meta.get("tokenizer.ggml.token_type", ())
    added = [(token, kind) for token, kind in zip(tokens, types, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in added if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in added if k == _USER_DEFINED])
    return tokenizer


def _pre_tokenizer(split: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in ("", "digits"))
    if not split:
        return byte_level
    first = digits if split == "digits" else pre_tokenizers.Split(Regex(split), behavior="isolated")
    return pre_tokenizers.Sequence([first, byte_level])


def _turn_end(meta: Mapping[str, Any], tokens: list[str], template: str) -> int:
    # Converters often name the end of the text here; a turn ends with the token its template writes.
    for token in _TURN_ENDS:
        if token in template and token in tokens:
            return tokens.index(token)
    return int(meta.get("tokenizer.ggml.eos_token_id", 0))
