"""What a command prints: data on stdout, words on stderr, and hostile text made harmless.

Exit codes: 0 done, 1 it ran and the answer is no, 2 wrong usage, 3 not found, 4 not signed in, 130 interrupted.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

OK, FAILED, USAGE, NOT_FOUND, AUTH, INTERRUPTED = 0, 1, 2, 3, 4, 130

words = Console(stderr=True, highlight=False)
"""Everything for people."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def print_json(value: Any) -> None:
    """The command's result, for programs."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    sys.stdout.write(_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text) + "\n")


def visible(text: object) -> str:
    """Text from a model, a tool or a dataset: control characters shown as escapes."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", str(text))


def safe(text: object) -> str:
    """The same, ready to be put among rich's markup."""
    return escape(visible(text))


def shorten(text: object, most: int = 80) -> str:
    """One line of bounded length."""
    line = " ".join(visible(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def stop(message: str, code: int) -> NoReturn:
    """Say what is wrong and end."""
    words.print(f"[red]error[/] {safe(message)}", soft_wrap=True)
    raise SystemExit(code)
