"""A rollout as OpenEnv knows one: `reset` begins it, `step` is a turn of the model.

A step's answer holds what the tools said, or, when the turn was the last, the reward: the weighted total, its
components and why the rollout ended. A rollout that could not be scored ends with the reward None, never 0.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.pushed_rollout import PushedRollout
from benchmax.envs.types import ChatMessage, Example, ToolCall
from benchmax.errors import UsageError
from benchmax.prompts.tools import mcp2openai
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings

SPLIT = "train"


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
            return _end(self._played.finished())
        host = self._session.host
        tools = self._session.run(host.toolbox(host.part_of(example))).tools
        return {"messages": prompt, "tools": [mcp2openai(tool) for tool in tools], "done": False}

    def step(self, text: str, tool_calls: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """A turn of the model: its text, in which calls may stand, or with the calls beside it."""
        if self._played is None or self.over:
            raise UsageError("No rollout is under way. Call reset() before step().")
        message: ChatMessage = {"role": "assistant", "content": text}
        if tool_calls:
            message["tool_calls"] = [ToolCall.from_dict(dict(call)).to_dict() for call in tool_calls]
        self.turns += 1
        observed = self._played.turn(message if tool_calls else text)
        if observed is not None:
            return {"messages": observed, "tools": [], "done": False}
        self.over = True
        return _end(self._played.finished())

    def close(self) -> None:
        if self._played is not None:
            self._played.give_up()
        self._played, self.over = None, True


def _end(rollout: Rollout) -> dict[str, Any]:
    metadata = {
        "rollout": rollout.id,
        "termination": rollout.termination.value,
        "rewards": dict(rollout.rewards),
        "unscored": dict(rollout.unscored),
        "error": rollout.error.message if rollout.error else None,
    }
    return {"messages": [], "tools": [], "done": True, "reward": rollout.reward, "metadata": metadata}
