"""Where a good answer is no text of a column: calls that a row tells, demonstrations, properties, untold forms."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmax.doctor import Diagnosis, examine
from benchmax.doctor.gold.answer_search import GoldFinder
from benchmax.doctor.gold.call_values import calls_in_row, values
from benchmax.doctor.gold.demonstrations import Demonstrator
from benchmax.doctor.probe_answers import tells
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.errors import ToolError
from benchmax.models.base import Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings

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


def written(at: int) -> dict[str, Any]:
    """One call as JSON text."""
    name, given = [("book", booking(at)), ("cancel", {})][at % 2]
    return {"ground_truth": json.dumps({"name": name, "arguments": given})}


class WrittenCalls(Desk):
    """Two components that differ only where the right tool is called with something wrong."""

    def wanted(self, task: dict[str, Any]) -> list[Any]:
        return [json.loads(task["ground_truth"])]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        made, wanted = self.made[rollout_id], self.wanted(task)
        named = [each["name"] for each in made] == [each["name"] for each in wanted]
        return {"call": 0.9 * (made == wanted), "function": 0.1 * named}


class Ledger(Desk):
    """Judged by what is there at the end, most of which was there before."""

    async def init_rollout(self, rollout_id, before, **rollout_args):
        self.made[rollout_id] = [dict(each) for each in before]

    async def run_tool(self, rollout_id, tool_name, **given):
        self.made[rollout_id].append(given)
        return "noted"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"there": float(self.made[rollout_id] == task["after"])}


def ledger(at: int) -> dict[str, Any]:
    before = [booking(at + 1), booking(at + 2)]
    return {"after": [*before, booking(at)], "init_rollout_args": {"before": before}}


TOLD = {
    "a call as JSON text": (WrittenCalls, written),
    "what is new at the end": (Ledger, ledger),
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
    assert list(calls_in_row([BOOK], example)) == []


class Finder(Desk):
    """A look-up whose result decides; the answer stands in `answer`, and is paid as a text."""

    system_prompt = "Look it up and answer with it."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(extract_completion_text(messages) == task["answer"])}


class Tides(Finder):
    tools = (
        ToolDefinition(
            "tides",
            "The tides of a day.",
            {"type": "object", "properties": {"day": {"type": "string", "description": "YYYY-MM-DD"}}},
        ),
    )

    async def run_tool(self, rollout_id, tool_name, day=""):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
            raise ToolError("day must be YYYY-MM-DD")
        return f"| high | {tide(day)} |"


def tide(day: str) -> str:
    return f"0{sum(map(int, day.replace('-', ''))) % 10}:{int(day[-2:]) + 15}"


class Pages(Finder):
    tools = (ToolDefinition("page", "One page.", {"type": "object", "properties": {"number": {"type": "integer"}}}),)

    async def init_rollout(self, rollout_id, shelf, **rollout_args):
        self.made[rollout_id] = shelf

    async def run_tool(self, rollout_id, tool_name, number=1):
        shelf = self.made[rollout_id]
        return json.dumps({"items": shelf[number - 1 : number], "next": number + 1 if number < len(shelf) else None})


class Cancelling(Desk):
    """What is to be deleted has an id that only the list tells."""

    tools = (
        ToolDefinition("list_all", "All there is.", {"type": "object", "properties": {}}),
        ToolDefinition(
            "delete",
            "Delete one.",
            {"type": "object", "properties": {"event_id": {"type": "string"}}, "required": ["event_id"]},
        ),
    )

    async def init_rollout(self, rollout_id, title, **rollout_args):
        self.made[rollout_id] = [{"id": f"{sum(map(ord, title)) * 7919 % 65536:04x}", "title": title}]

    async def run_tool(self, rollout_id, tool_name, event_id=""):
        if tool_name == "list_all":
            return json.dumps(self.made[rollout_id])
        self.made[rollout_id] = [each for each in self.made[rollout_id] if each["id"] != event_id]
        return "done"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"gone": float(not self.made[rollout_id])}


async def solutions(env: type[BaseEnv], rows: list[dict[str, Any]]) -> list[Any]:
    """What is found for each row."""
    examples = load_examples(rows, env).examples
    async with EnvHost(env) as host:
        player = ProbePlayer(host, RolloutSettings(sampling=Sampling(max_tokens=None)))
        tools = (await host.toolbox()).tools
        demonstrator = Demonstrator(player, await GoldFinder(player, tools).find(examples), tools)
        return [await demonstrator.solve(example) for example in examples]


def calls(solution: Any) -> list[dict[str, Any]]:
    return [call.arguments_dict() for turn in solution.turns if isinstance(turn, tuple) for call in turn]


@pytest.mark.parametrize(
    "said", ["{day} March 2025", "March {day}, 2025", "the {day}th of March 2025", "{day}.03.2025"]
)
async def test_a_date_in_prose_is_looked_up_as_tools_want_it(said: str) -> None:
    days = [f"2025-03-{day}" for day in range(14, 20)]
    rows = [{"prompt": f"When is high tide on {said.format(day=day[-2:])}?", "answer": tide(day)} for day in days]
    assert [calls(each) for each in await solutions(Tides, rows)] == [[{"day": day}] for day in days]


async def test_pages_are_read_from_the_first() -> None:
    shelves = [[f"book{at}{page}" for page in range(3)] for at in range(6)]
    rows = [
        {"prompt": f"Which is number {at} there?", "answer": shelf[at % 3], "init_rollout_args": {"shelf": shelf}}
        for at, shelf in enumerate(shelves)
    ]
    for at, found in enumerate(await solutions(Pages, rows)):
        pages = [each.get("number", 1) for each in calls(found)]
        assert pages == list(range(1, at % 3 + 2))


async def test_what_a_tool_told_is_used_in_the_next_call() -> None:
    rows = [
        {"prompt": f"Cancel {title}.", "init_rollout_args": {"title": title}}
        for title in ("dentist", "piano", "review", "planning", "board", "choir")
    ]
    found = await solutions(Cancelling, rows)
    assert [each.reward for each in found] == [1.0] * len(rows)
    assert all(len(calls(each)) == 2 and calls(each)[0] == {} for each in found)


class FrontDesk(Desk):
    """A room has to be found first; the guest and the nights are told by the prompt and by columns."""

    tools = (
        ToolDefinition(
            "find", "Free rooms.", {"type": "object", "properties": {"kind": {"enum": ["single", "suite"]}}}
        ),
        ToolDefinition(
            "take",
            "Take a room.",
            {
                "type": "object",
                "properties": {key: {"type": "string"} for key in ("room_id", "guest")}
                | {"nights": {"type": "integer"}},
            },
        ),
    )

    async def run_tool(self, rollout_id, tool_name, **given):
        if tool_name == "find":
            return json.dumps([{"id": self.room(given.get("kind", "")), "price": 90}])
        self.made[rollout_id].append(given)
        return "taken"

    def room(self, kind: str) -> str:
        return f"R{len(kind) * 17}"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        wanted = {"room_id": self.room(task["kind"]), "guest": task["guest"], "nights": task["nights"]}
        return {"right": float(self.made[rollout_id] == [wanted])}


async def test_a_column_with_the_name_of_a_parameter_goes_before_the_same_text_in_the_prompt() -> None:
    rows = [
        {"kind": ("single", "suite")[at % 2], "guest": ("Dr Ito", "Ms Bell", "Lee")[at % 3], "nights": 2 + at}
        for at in range(4)
    ]
    rows = [{"prompt": f"{r['guest']} wants a {r['kind']} room for {r['nights']} nights.", **r} for r in rows]
    found = await solutions(FrontDesk, rows)
    assert [calls(solution)[-1]["guest"] for solution in found] == [row["guest"] for row in rows]


class Commands(Desk):
    """Says nothing where a command has worked."""

    async def run_tool(self, rollout_id, tool_name, **given):
        self.made[rollout_id].append({"name": tool_name, "arguments": given})
        return ""

    @classmethod
    def gold_tool_calls(cls, example):
        return [ToolCall("book", json.dumps(example["task"]["booking"]))]


class Down(Desk):
    async def run_tool(self, rollout_id, tool_name, **given):
        return "Service unavailable, try again later."


async def test_a_tool_that_says_nothing_works_and_one_that_says_it_is_down_does_not() -> None:
    rows = [{"prompt": f"Book {at}.", "booking": booking(at)} for at in range(ROWS)]
    assert not (await examine(Commands, rows=rows, pace="quick")).find("tools-not-served")
    down = (await examine(Down, rows=rows, pace="quick")).find("tools-not-served")
    assert [finding.title for finding in down] == ["book does not work.", "cancel does not work."]


class Routing(Desk):
    """Pays for one right choice among any number of them."""

    tools = (
        ToolDefinition(
            "assign",
            "Assign it.",
            {"type": "object", "properties": {"team": {"enum": ["tech", "sales", "law"]}}, "required": ["team"]},
        ),
    )

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"routed": float(any(each["arguments"]["team"] == task["team"] for each in self.made[rollout_id]))}


async def test_a_tool_is_called_with_each_of_its_choices() -> None:
    rows = [{"prompt": f"Ticket {at}.", "team": ("tech", "sales", "law", "law")[at % 4]} for at in range(ROWS)]
    diagnosis = await examine(Routing, rows=rows, pace="quick")
    assert diagnosis.find("pays-for-tool-spam")
    assert {answer.reward for answer in diagnosis.answers if answer.probe == "gold"} == {1.0}


def test_the_same_number_in_other_digits_is_told() -> None:
    assert tells("It costs 7.90 each.", "7.9")
    assert tells("Paris", "paris")
    assert not tells("It costs 17.90 or v7.90 each.", "7.9")
    assert not tells("Room 790", "7.9")


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


class Invoice(BaseEnv):
    system_prompt = "Add up the invoice. Reply with the total only, in the form €1,234.50"

    def read(self, text: str) -> float:
        return float(text)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        try:
            return {"right": float(abs(self.read(extract_completion_text(messages)) - task["total"]) < 0.005)}
        except (ValueError, OverflowError):
            return {"right": 0.0}


class CleanedInvoice(Invoice):
    def read(self, text: str) -> float:
        return float(text.strip().removeprefix("€").replace(",", ""))


async def test_a_number_in_the_form_that_the_prompt_shows_must_earn() -> None:
    rows = [{"prompt": f"{at} hours and {at * 3} miles", "total": 1200.5 + 7 * at} for at in range(ROWS)]
    assert reports(await examine(Invoice, rows=rows)) == ["unasked-form"]
    assert reports(await examine(CleanedInvoice, rows=rows)) == []


class Recipe(BaseEnv):
    system_prompt = 'Reply with a JSON object such as {"flour": 250, "eggs": 3}: grams and pieces.'

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.search(r"\{[^{}]*\}", extract_completion_text(messages))
        try:
            return {"right": float(found is not None and json.loads(found[0]) == task["scaled"])}
        except ValueError:
            return {"right": 0.0}


async def test_a_table_is_shown_as_itself() -> None:
    rows = [
        {"prompt": f"Pancakes for 2: {at} g flour, {at} eggs.", "scaled": {"flour": 2 * at, "eggs": 3 * at}}
        for at in range(1, 9)
    ]
    assert [json.loads(each.turns[-1]) for each in await solutions(Recipe, rows)] == [row["scaled"] for row in rows]


class Thermostats(Desk):
    """All rooms count, and most of them were right before."""

    tools = (
        ToolDefinition(
            "set_room",
            "Set a room.",
            {"type": "object", "properties": {"room": {"type": "string"}, "degrees": {"type": "integer"}}},
        ),
    )

    async def init_rollout(self, rollout_id, rooms, **rollout_args):
        self.made[rollout_id] = dict(rooms)  # type: ignore[assignment]

    async def run_tool(self, rollout_id, tool_name, room="", degrees=0):
        self.made[rollout_id][room] = degrees
        return "set"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        wanted = task["wanted"]
        return {"rooms": sum(self.made[rollout_id].get(room) == degrees for room, degrees in wanted.items()) / 4}


async def test_what_is_right_from_the_start_is_told_once() -> None:
    rows = []
    for at in range(ROWS):
        rooms = dict.fromkeys(("kitchen", "hall", "bath", "attic"), 18)
        wanted = {**rooms, "hall": 20 + at}
        prompt = f"Turn the hall to {20 + at} degrees."
        rows.append({"prompt": prompt, "wanted": wanted, "init_rollout_args": {"rooms": rooms}})
    diagnosis = await examine(Thermostats, rows=rows)
    assert [each.check for each in diagnosis.errors] == ["pays-for-nothing"]
    assert "before the first call" in diagnosis.errors[0].text()


class Quiz(Desk):
    """Who answers wrongly is told the answer, and may try again."""

    tools = (
        ToolDefinition(
            "submit",
            "Submit the number.",
            {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
        ),
    )
    told = "Wrong, it is {}."

    async def init_rollout(self, rollout_id, right, **rollout_args):
        self.made[rollout_id] = [right, None]

    async def run_tool(self, rollout_id, tool_name, number):
        self.made[rollout_id][1] = number
        return "Right." if number == self.made[rollout_id][0] else self.told.format(self.made[rollout_id][0])

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        right, last = self.made[rollout_id]
        return {"right": float(right == last)}


class Fair(Quiz):
    told = "Wrong."


async def test_a_tool_that_tells_what_it_wants() -> None:
    rows = [{"prompt": f"Year of battle {at}?", "init_rollout_args": {"right": 1200 + 37 * at}} for at in range(ROWS)]
    assert "leaks-ground-truth-tool" in reports(await examine(Quiz, rows=rows))
    assert reports(await examine(Fair, rows=rows)) == []
