"""The exact tokens of a rollout, with what each reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmax.files import json_size
from benchmax.files.links import read_plain
from benchmax.platform.store.clean_text import clean
from benchmax.platform.wire.rollouts import TokenRun

VOCABULARY = "vocabulary.json"
"""Beside a run's rollouts: what each token reads, written when tokens are saved."""
_VOCABULARY_BYTES = 64_000_000


def token_runs(run_dir: Path, record: Mapping[str, Any]) -> list[TokenRun] | None:
    """A record's tokens, with what each reads; None when it has none."""
    saved = record.get("tokens")
    if not isinstance(saved, list) or not saved:
        return None
    file = run_dir / VOCABULARY
    try:
        known = _vocabulary(file, file.lstat().st_mtime_ns)
    except OSError:
        known = None
    return [_token_run(segment, known) for segment in saved]


def _token_run(segment: Mapping[str, Any], known: Sequence[str] | None) -> TokenRun:
    ids, logprobs = segment["ids"], segment.get("logprobs")
    texts = None if known is None else [known[i] if 0 <= i < len(known) else "\ufffd" for i in ids]
    rounded = None if logprobs is None else [round(value, 4) for value in logprobs]
    return TokenRun(sampled=segment["sampled"], ids=ids, texts=texts, logprobs=rounded)


@lru_cache(maxsize=4)
def _vocabulary(path: Path, _changed: int) -> tuple[str, ...] | None:
    try:
        text = read_plain(path.parent, path.name, _VOCABULARY_BYTES)
        words = [] if json_size.too_many(text) else json.loads(text)
        return tuple(clean(str(text)) for text in words)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
