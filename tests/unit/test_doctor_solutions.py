"""Where a good answer is no text of a column: calls that a row tells, demonstrations, properties, untold forms."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmax.doctor import Diagnosis, examine
from benchmax.doctor.gold.call_values import told_calls, values
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolDefinition

ROOMS = ["maple", "birch", "cedar"]
BOOK = ToolDefinition(
    "book",
    "Book a room.",
    {
        "type": "object",
        "properties": {
            "room": {"type": "string", "enum": ROOMS},
            "hour": {"type": "integer"},
            "people": {"type": "integer"},
            "projector": {"type": "boolean"},
            "note": {"type": "string"},
        },
        "required": ["room", "hour", "people", "projector"],
    },
)
CANCEL = ToolDefinition("cancel", "Cancel all.", {"type": "object", "properties": {}})
ROWS = 20


def booking(at: int) -> dict[str, Any]:
    return {"room": ROOMS[at % 3], "hour": 8 + at % 10, "people": 2 + at % 7, "projector": at % 2 == 0}


class Desk(BaseEnv):
    """Pays for exactly the calls that are wanted, whose arguments no text of the prompt spells out."""

    system_prompt = "Book what is asked for."
    tools = (BOOK, CANCEL)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.made: dict[str, list[Any]] = {}

    async def list_tools(self):
        return list(self.tools)

    async def init_rollout(self, rollout_id, **rollout_args):
        self.made[rollout_id] = []

    async def release_rollout(self, rollout_id):
        self.made.pop(rollout_id, None)

    async def run_tool(self, rollout_id, tool_name, **given):
        self.made[rollout_id].append({"name": tool_name, "arguments": given})
        return "noted"

    def wanted(self, task: dict[str, Any]) -> list[Any]:
        return [{"name": "book", "arguments": task["booking"]}]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"done": float(self.made[rollout_id] == self.wanted(task))}


class FunctionCalls(Desk):
    def wanted(self, task: dict[str, Any]) -> list[Any]:
        return [
            {"name": each["function"]["name"], "arguments": json.loads(each["function"]["arguments"])}
            for each in task["calls"]
        ]


class Flat(Desk):
    def wanted(self, task: dict[str, Any]) -> list[Any]:
        return [{"name": "book", "arguments": {name: task[name] for name in booking(0)}}]


def wire(at: int) -> list[dict[str, Any]]:
    """Calls as the chat API writes them."""
    made = [("cancel", {}), ("book", booking(at))]
    return [{"type": "function", "function": {"name": name, "arguments": json.dumps(given)}} for name, given in made]


TOLD = {
    "arguments in a column": (Desk, lambda at: {"booking": booking(at)}),
    "calls of several tools": (FunctionCalls, lambda at: {"calls": wire(at)}),
    "arguments as columns": (Flat, booking),
}


def reports(diagnosis: Diagnosis) -> list[str]:
    return [each.check for each in (*diagnosis.errors, *diagnosis.warnings)]


@pytest.mark.parametrize("name", TOLD)
async def test_calls_that_the_row_tells_are_made(name: str) -> None:
    env, columns = TOLD[name]
    rows = [{"prompt": f"Request {'x' * at}", **columns(at)} for at in range(ROWS)]
    diagnosis = await examine(env, rows=rows)
    assert reports(diagnosis) == []
    assert {each.reward for each in diagnosis.answers if each.probe == "gold"} == {1.0}


def test_what_is_no_call_is_not_taken_for_one() -> None:
    example: Any = {"id": "1", "prompt_messages": [], "task": {"a": {"room": "maple"}, "b": [1, 2], "c": "book"}}
    assert list(told_calls([BOOK], example)) == []


@pytest.mark.parametrize(
    ("prompt", "thing"),
    [
        ("Where do we keep the oak hook?", "oak hook"),
        ("A customer wants a tin panel. Which town?", "tin panel"),
        ("Find out who owns the blue delivery van, please.", "blue delivery van"),
    ],
)
def test_a_thing_of_several_words_is_a_value(prompt: str, thing: str) -> None:
    example: Any = {"id": "1", "prompt_messages": [{"role": "user", "content": prompt}], "task": {}}
    assert thing in [each.value for each in values(example, [])]


class Rover(Desk):
    """Only what it drives counts, and `demonstrate` shows how."""

    system_prompt = "Drive to the flag."
    tools = (
        ToolDefinition(
            "drive",
            "Drive.",
            {"type": "object", "properties": {"by": {"type": "array", "items": {"type": "integer"}}}},
        ),
    )

    async def compute_reward(self, rollout_id, messages, task, start, **kwargs):
        at = list(start)
        for call in self.made[rollout_id]:
            at = [here + step for here, step in zip(at, call["arguments"].get("by", []), strict=False)]
        return {"there": float(at == task["flag"])}

    def demonstrate(self, example):
        start, flag = example["init_rollout_args"]["start"], example["task"]["flag"]
        yield "drive", {"by": [there - here for here, there in zip(start, flag, strict=True)]}
        yield "there"


async def test_what_is_demonstrated_is_the_gold_answer() -> None:
    rows = [
        {"prompt": f"From {at} to {at + 3}.", "flag": [at + 3, 9], "init_rollout_args": {"start": [at, 4]}}
        for at in range(ROWS)
    ]
    diagnosis = await examine(Rover, rows=rows)
    assert reports(diagnosis) == []
    assert {each.reward for each in diagnosis.answers if each.probe == "gold"} == {1.0}


class Tautogram(BaseEnv):
    """Pays for a property of the text; no column holds an answer."""

    system_prompt = "You write texts in which every word begins with the same letter."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        words = re.findall(r"[a-z']+", extract_completion_text(messages).lower())
        share = sum(word[0] == task["letter"] for word in words) / max(1, len(words))
        return {"letter": share * len(set(words)) / max(1, len(words)) * min(1.0, len(words) / task["words"])}


class Shown(Tautogram):
    @classmethod
    def gold_completion(cls, example):
        task = example["task"]
        return " ".join(task["letter"] + "abcdefgh"[:at] for at in range(1, task["words"] + 1))


TAUTOGRAMS = [
    {"prompt": f"{letter.upper()}, at least {4 + at % 4} words.", "letter": letter, "words": 4 + at % 4}
    for at, letter in enumerate("abcdefghilmnoprstw")
]


async def test_a_guess_that_earns_little_is_no_measure() -> None:
    diagnosis = await examine(Tautogram, rows=TAUTOGRAMS)
    assert reports(diagnosis) == ["gold-unknown"]
    (finding,) = diagnosis.find("gold-unknown")
    assert "the best answer that could be made from the columns" in finding.text()
    assert reports(await examine(Shown, rows=TAUTOGRAMS)) == []


class Untold(BaseEnv):
    system_prompt = "Name the capital."
    reward_weights = {"right": 1.0, "words": -0.01}

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        found = re.search(r"<answer>(.*?)</answer>", text)
        right = found is not None and found[1] == task["answer"]
        return {"right": float(right), "words": float(len(text.split()) > 12) * 20}


class Told(Untold):
    system_prompt = "Name the capital in <answer> tags."


async def test_a_form_that_nobody_is_told_of() -> None:
    rows = [{"prompt": f"Of land {at}?", "answer": f"Town{at}"} for at in range(ROWS)]
    diagnosis = await examine(Untold, rows=rows)
    assert reports(diagnosis) == ["unasked-form"], "20 times -0.01 is not large"
    assert "not told" in diagnosis.find("unasked-form")[0].text()
    assert reports(await examine(Told, rows=rows)) == []
