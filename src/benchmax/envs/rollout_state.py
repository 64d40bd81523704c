"""What belongs to each rollout, under its id: looking up one that was not begun says what to do."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from benchmax.errors import EnvError

T = TypeVar("T")


def not_begun(rollout_id: str) -> str:
    return f"The rollout {rollout_id!r} was not begun. Call init_rollout first, with the example's init_rollout_args."


class RolloutState(dict[str, T]):
    """A dict by rollout id; `state[id]` raises EnvError for a rollout that was not begun, or is over."""

    def __missing__(self, rollout_id: str) -> NoReturn:
        raise EnvError(not_begun(rollout_id))
