"""A toy language model with fresh weights: 0.3 million of them, one token per character.

It needs no download and learns in seconds, so a whole training run can be tried, or tested, anywhere.
Its chat format is the first letter of the role in brackets: `[u]2+3?[e]\\n[a]5[e]`.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

SPECIAL = ("[e]", "[s]", "[u]", "[a]", "[t]", "<answer>", "</answer>")
"""Tokens that are more than one character; the first ends a turn."""
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m['role'][0] + ']' + m['content'] + '[e]' }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '[a]' }}{% endif %}"
)


def make_tiny(directory: Path | str, *, hidden: int = 96, layers: int = 3, context: int = 512, seed: int = 0) -> Path:
    """Write a fresh model with random weights; any transformers code can load it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    directory = Path(directory)
    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = dict.fromkeys(string.digits + string.ascii_letters + string.punctuation + " \n")
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, "[?]", *letters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[?]"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL[:5]])
    core.add_tokens([AddedToken(token, normalized=False) for token in SPECIAL[5:]])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        unk_token="[?]",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
