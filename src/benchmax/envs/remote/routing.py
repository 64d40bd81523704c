"""Which of several processes plays a rollout: siblings must meet in one, to be scored together.

Rollouts of one example go to the same process. The example is known from `example_context`. Without it, a rollout goes
wherever there is least to do, unless the environment scores groups: then the arguments of the first hook decide, which
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
    """Tell which example the rollouts begun in this block belong to."""
    token = _example.set(example_id)
    try:
        yield
    finally:
        _example.reset(token)


def placement_key(hook: str, kwargs: Mapping[str, Any], basis: str | None) -> str | None:
    """What decides the process of a new rollout; None for any process."""
    if example := _example.get():
        return example
    if basis is None:
        return None
    shared = {key: value for key, value in kwargs.items() if key not in ("messages", "completion")}
    return json.dumps(shared, sort_keys=True, default=str) if hook == basis else ""


def placement_basis(overridden: Collection[str]) -> str | None:
    """The hook by whose arguments siblings are known, where the example is not; "" for none, None for no need."""
    if "compute_group_reward" not in overridden:
        return None
    if "init_rollout" in overridden:
        return "init_rollout"
    return "" if "run_tool" in overridden else "compute_reward"
