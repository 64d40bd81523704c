"""The code in what a model wrote: the last fenced block that defines the function, or what stands in `<answer>` tags.

Only what is closed counts, and only what the model itself wrote last: examples of the prompt and results of tools do
not. The code is looked at as text: parsing it here could take this process down.
"""

from __future__ import annotations

import re
from typing import Any

from benchmax import limits
from benchmax.envs.reward_helpers import extract_last_answer_block, last_text

_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\n`]*+)$", re.MULTILINE)


def final_code(messages: Any, name: str) -> str | None:
    """The code of the last turn with text; None when there is none, or it is too long."""
    text = last_text(messages)
    if len(text) > limits.CODE_ANSWER_CHARS:
        return None
    blocks = fenced_blocks(text)
    tagged = extract_last_answer_block(text)
    if tagged and not blocks:
        blocks = [tagged]
    return next((block for block in reversed(blocks) if defines(block, name)), blocks[-1] if blocks else None)


def fenced_blocks(text: str) -> list[str]:
    """What stands between fences; an unclosed one holds nothing."""
    blocks, opened, start = [], "", 0
    for fence in _FENCE.finditer(text):
        if not opened:
            opened, start = fence[1], fence.end() + 1
        elif fence[1].startswith(opened) and not fence[2].strip():
            blocks.append(text[start : fence.start()])
            opened = ""
    return blocks


def defines(source: str, name: str) -> bool:
    """Whether code defines a name at its top level."""
    named = re.escape(name)
    return re.search(rf"^(?:(?:async +)?def +|class +)?{named}\b *(?:\(|:|=(?!=))", source, re.MULTILINE) is not None
