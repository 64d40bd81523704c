"""Rollouts as a caller asks for them, and as the wire shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from benchmax.files import json_size
from benchmax.files.links import read_plain
from benchmax.platform.server.services.runs.run_views import EvalId, Mode
from benchmax.platform.store.runs import evals
from benchmax.platform.store.tables import RolloutRow
from benchmax.platform.store.text import clean
from benchmax.platform.wire.rollouts import RolloutItem, TokenRun

VOCABULARY = "vocabulary.json"
"""Beside a run's rollouts: what each token reads, written when tokens are saved."""
_VOCABULARY_BYTES = 64_000_000

Order = Annotated[Literal["newest", "worst", "best", "longest"], Query()]
_Reward = Annotated[float | None, Query(allow_inf_nan=False)]


def scope_of(mode: str, external_eval_id: str | None) -> dict[str, str]:
    """An external eval has its own mode, whatever mode was named with it."""
    return {"mode": evals.MODE, "eval_id": external_eval_id} if external_eval_id else {"mode": mode}


def _wanted(
    mode: Mode = "eval",
    external_eval_id: EvalId = None,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    example: Annotated[str | None, Query(alias="promptMessageId", max_length=80)] = None,
    termination: Annotated[str | None, Query(max_length=40)] = None,
    failed: bool | None = None,
    tool: Annotated[str | None, Query(max_length=200)] = None,
    discarded: bool | None = None,
    lowest: _Reward = None,
    highest: _Reward = None,
    component: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    return {
        **scope_of(mode, external_eval_id),
        "step": step,
        "example_id": example,
        "termination": termination,
        "failed": failed,
        "tool": tool,
        "discarded": discarded,
        "lowest": lowest,
        "highest": highest,
        "component": component,
    }


Wanted = Annotated[dict[str, Any], Depends(_wanted)]
"""What `rollouts.matching` filters on."""


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


def rollout_item(row: RolloutRow) -> RolloutItem:
    return RolloutItem(
        id=row.id,
        step=row.step,
        mode=row.mode,
        prompt_message_id=row.example_id,
        prompt_text=row.prompt_text,
        sample=row.sample,
        total_reward=row.reward,
        rewards=row.components,
        termination=row.termination,
        error_type=row.error_type,
        ok=row.ok,
        discarded=row.discarded,
        advantage=row.advantage,
        tokens=row.tokens,
        turns=row.turns,
        tools=row.tools,
    )
