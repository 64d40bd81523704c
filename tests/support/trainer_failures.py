"""A group in which everything happens, and which every trainer has to receive whole.

Six siblings of one prompt, in an environment with two asynchronous tools and a reward of the group: one cannot begin,
one's reward raises, one outgrows what the trainer takes, the engine dies under one, and two finish, a tool having
raised for one of them. Releasing raises once, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmax import BaseEnv
from benchmax.envs.types import ToolDefinition
from benchmax.prompts.tools import render_tool_call
from trainer_world import TEMPLATES, Case, Sample, Template, last_answer, tokenizer

RECALL = ToolDefinition("recall", "Return what was said last.", {"type": "object", "properties": {}})
REPEAT = ToolDefinition(
    "repeat",
    "Repeat a word.",
    {
        "type": "object",
        "properties": {"word": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["word", "times"],
    },
)
LONG = 3000
"""Tokens of the answer that no trainer takes."""


class RoughEnv(BaseEnv):
    """Pays for an answer, and half a point more to those with the most turns."""

    system_prompt = "Use the tools, then answer."
    begun: list[str] = []
    released: list[str] = []

    @classmethod
    def start_anew(cls) -> None:
        """For a group of which the second cannot begin."""
        cls.begun, cls.released = [], []

    async def init_rollout(self, rollout_id: str, **kwargs: Any) -> None:
        self.begun.append(rollout_id)
        if len(self.begun) == 2:
            raise RuntimeError("no seat")

    async def release_rollout(self, rollout_id: str) -> None:
        self.released.append(rollout_id)
        if len(self.released) == 3:
            raise RuntimeError("the seat is stuck")

    async def list_tools(self) -> list[ToolDefinition]:
        return [RECALL, REPEAT]

    async def run_tool(self, rollout_id: str, tool_name: str, **arguments: Any) -> str:
        await asyncio.sleep(0)
        if tool_name == "recall":
            raise ValueError("nothing was said")
        return str(arguments["word"] * arguments["times"])

    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
        if last_answer(messages) == "raise":
            raise RuntimeError("the judge is out")
        return {"answered": 1.0}

    async def compute_group_reward(self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any) -> list[Any]:
        turns = [sum(message["role"] == "assistant" for message in messages) for messages in messages_list]
        return [{"most_turns": 0.5 * (count == max(turns))} for count in turns]


class RoughAloneEnv(RoughEnv):
    """For trainers that know no siblings."""

    compute_group_reward = BaseEnv.compute_group_reward


def repeat(word: str, times: int) -> str:
    return render_tool_call("repeat", f'{{"word": "{word}", "times": {times}}}')


FINISHES = (repeat("ab", 2), "four letters")
RECALLS = (render_tool_call("recall", "{}"), "nothing, then")
RAISES = ("raise",)
OVERFLOWS = (repeat("x", LONG), "never said")
DIES = (repeat("cd", 2), None)
"""What is said, turn by turn; None is an engine that dies."""
SIBLINGS = (FINISHES, RECALLS, RAISES, OVERFLOWS, DIES)
"""Those of the group that begin."""
COUNT = len(SIBLINGS) + 1
ROUGH = Case("rough", TEMPLATES[0], RoughEnv, (Sample((), None),) * COUNT)
"""The group as the worlds of the trainers take it."""
GROUP = sorted(
    [("finished", 1.5), ("finished", 1.5), ("context_exceeded", 1.0), ("reward_error", None), ("model_error", None),
     ("env_error", None)], key=str,
)  # fmt: skip
"""How they end, and what they earn."""


def ended(group: Any) -> list[tuple[str, float | None]]:
    """How some rollouts ended, to be compared with `GROUP`."""
    return sorted(((rollout.termination.value, rollout.reward) for rollout in group), key=str)


@dataclass
class Actor:
    """An engine that says these turns: every new conversation is the next of them. Safe to ask from several threads."""

    template: Template
    conversations: Sequence[Sequence[str | None]] = SIBLINGS
    most: int | None = None
    """Tokens of a prompt that it takes."""
    open: list[tuple[list[int], list[str | None]]] = field(default_factory=list)
    """Conversations: their ids so far, and the turns to come."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.encode = tokenizer(self.template)
        self.fresh = [list(turns) for turns in self.conversations]

    def next_turn(self, prompt: Sequence[int]) -> tuple[list[int], list[float]]:
        """The ids that follow `prompt`, and their log-probs."""
        if self.most is not None and len(prompt) > self.most:
            raise ValueError(f"This model's maximum context length is {self.most} tokens; {len(prompt)} were given.")
        with self.lock:
            text = self._turn(list(prompt))
        if text is None:
            raise ConnectionError("the engine is gone")
        ids = self._ids(text)
        return ids, [-0.5] * len(ids)

    def _turn(self, prompt: list[int]) -> str | None:
        waiting = [each for each in self.open if each[1] and prompt[: len(each[0])] == each[0]]
        if waiting:
            said, turns = max(waiting, key=lambda each: len(each[0]))
        else:
            said, turns = [], self.fresh.pop(0)
            self.open.append((said, turns))
        text = turns.pop(0)
        said[:] = [*prompt, *self._ids(text or "")]
        return text

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.encode(text + self.template.end, add_special_tokens=False)["input_ids"]
        return ids
