"""A rollout as OpenEnv knows one: `reset` begins it, `step` is a turn of the model.

A step's answer holds what the tools said, or, when the turn was the last, the reward: the weighted total, its
components and why the rollout ended. A rollout that could not be scored ends with the reward None, never 0.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.pushed_rollout import PushedRollout, group_reward_warning
from benchmax.envs.types import ChatMessage, Example, ToolCall
from benchmax.errors import ContextExceeded, ModelUnavailable, UsageError
from benchmax.prompts.tools import mcp2openai
from benchmax.rollouts.settings import RolloutSettings

SPLIT = "train"
Stop = Literal["context_exceeded", "model_error"]
"""Why the trainer has no further turn: its conversation is full, or its engine failed."""


class Tasks:
    """The rows that episodes are played on, for all sessions."""

    def __init__(self, examples: Sequence[Example]) -> None:
        if not examples:
            raise UsageError("There are no rows to serve. Give some with --data.")
        self.examples = examples
        self._next = itertools.count()

    def pick(self, index: int | None, seed: int | None) -> int:
        """The row that is asked for; by a seed always the same one; else one after another."""
        if index is None:
            number = next(self._next) if seed is None else random.Random(seed).randrange(len(self.examples))
            return number % len(self.examples)
        if not 0 <= index < len(self.examples):
            raise IndexError(f"There is no row {index}; there are {len(self.examples)}, from 0.")
        return index

    def describe(self, index: int) -> dict[str, Any]:
        example = self.examples[self.pick(index, None)]
        return {"id": example["id"], "index": index}


class Episode:
    """What one session holds: a rollout after another, each begun by `reset`."""

    def __init__(self, session: EnvSession, tasks: Tasks, settings: RolloutSettings) -> None:
        self._session, self._tasks, self._settings = session, tasks, settings
        self._played: PushedRollout | None = None
        self.index: int | None = None
        self.turns = 0
        self.over = True

    def reset(self, *, index: int | None = None, seed: int | None = None) -> dict[str, Any]:
        """Begin a rollout; one that was under way is given up."""
        self.close()
        self.index = self._tasks.pick(index, seed)
        self._played = PushedRollout(self._session, "openenv")
        example = self._tasks.examples[self.index]
        prompt = self._played.begin(example, self._settings)
        self.turns, self.over = 0, prompt is None
        if prompt is None:
            return self._end(self._played)
        host = self._session.host
        tools = self._session.run(host.toolbox(host.part_of(example))).tools
        return {"messages": prompt, "tools": [mcp2openai(tool) for tool in tools], "done": False}

    def step(self, text: str, tool_calls: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """A turn of the model: its text, in which calls may stand, or with the calls beside it."""
        played = self._under_way()
        message: ChatMessage = {"role": "assistant", "content": text}
        if tool_calls:
            message["tool_calls"] = [ToolCall.from_dict(dict(call)).to_dict() for call in tool_calls]
        self.turns += 1
        observed = played.turn(message if tool_calls else text)
        if observed is not None:
            return {"messages": observed, "tools": [], "done": False}
        return self._end(played)

    def stop(self, why: Stop) -> dict[str, Any]:
        """The end of a rollout to which the trainer has nothing to add; what there is will be scored."""
        played = self._under_way()
        if why == "context_exceeded":
            played.stop(ContextExceeded("The conversation no longer fits the trainer's model. Raise its limits."))
        else:
            played.stop(ModelUnavailable("The trainer's engine failed. See the trainer's log."))
        return self._end(played)

    def _under_way(self) -> PushedRollout:
        if self._played is None or self.over:
            raise UsageError("No rollout is under way. Call reset() before step().")
        return self._played

    def _end(self, played: PushedRollout) -> dict[str, Any]:
        self.over = True
        rollout = played.finished()
        warning = group_reward_warning(self._session) if rollout.reward is None and not rollout.unscored else None
        metadata = {
            "rollout": rollout.id,
            "termination": rollout.termination.value,
            "rewards": dict(rollout.rewards),
            "unscored": dict(rollout.unscored),
            "error": rollout.error.message if rollout.error else warning,
        }
        return {"messages": [], "tools": [], "done": True, "reward": rollout.reward, "metadata": metadata}

    def close(self) -> None:
        if self._played is not None:
            self._played.give_up()
        self._played, self.over = None, True
