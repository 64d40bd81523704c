"""Which of several processes plays a rollout: siblings must be in the same one, to be scored together.

Rollouts of one example go to the same process. The example is known from `example_context`. Without it, a rollout goes
to the least busy process, unless the environment scores groups: then the arguments of the first hook decide, which
siblings share, and where that hook has none (a tool call), one process plays all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_example: ContextVar[str] = ContextVar("benchmax_example", default="")


@contextmanager
def example_context(example_id: str) -> Iterator[None]:
    """Set the example that rollouts begun in this block belong to."""
    token = _example.set(example_id)
    try:
        yield
    finally:
        _example.reset(token)


def routing_key(hook: str, kwargs: Mapping[str, Any], deciding: str | None) -> str | None:
    """Rollouts with the same key go to the same process; None for any process."""
    if example := _example.get():
        return example
    if deciding is None:
        return None
    shared = {key: value for key, value in kwargs.items() if key not in ("messages", "completion")}
    return json.dumps(shared, sort_keys=True, default=str) if hook == deciding else ""


def deciding_hook(overridden: Collection[str]) -> str | None:
    """The hook whose arguments identify siblings when the example is unknown; "" for none, None when not needed."""
    if "compute_group_reward" not in overridden:
        return None
    if "init_rollout" in overridden:
        return "init_rollout"
    return "" if "run_tool" in overridden else "compute_reward"
