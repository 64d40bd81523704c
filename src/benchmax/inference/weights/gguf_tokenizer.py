"""A tokenizer out of GGUF metadata: byte-level BPE with the model's own way of splitting text.

How text is split before the merges apply is not in the file, only its name (`tokenizer.ggml.pre`). SmolLM2 was trained
with every digit on its own; a tokenizer that ignores it makes `345` a token the model has never seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.errors import UsageError
from benchmax.files.atomic import write_json

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


def write_tokenizer(meta: Mapping[str, Any], directory: Path) -> int:
    """Write the tokenizer files into `directory`; returns the id of the token that ends a turn."""
    _build(meta).save(str(directory / "tokenizer.json"))
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


def _build(meta: Mapping[str, Any]) -> Any:
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
