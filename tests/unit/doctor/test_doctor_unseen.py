"""Environments of many kinds, as strangers write them: a sound one is understood, a flaw is called by its name."""

from __future__ import annotations

import fnmatch
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from benchmax.doctor import Diagnosis, examine
from benchmax.doctor.gold.answer_formats import THOUGHT, asked_forms, asks_for_thought
from benchmax.doctor.gold.value_formats import spellings
from benchmax.doctor.probe_answers import cleaned, set_apart
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.calculator.calculator_env import CalculatorEnv
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolDefinition

Rows = list[dict[str, Any]]
Score = Callable[[str, dict[str, Any]], float]
WORDS = "river stone cloud ember frost grain harbor island jungle kettle lantern meadow needle orchard pepper quarry"


def rows_of(make: Callable[[int, str], dict[str, Any]]) -> Rows:
    return [{"prompt": f"Question {at} of the list?"} | make(at, word) for at, word in enumerate(WORDS.split())]


def scored(prompt: str, score: Score) -> type[BaseEnv]:
    """An environment whose reward is a function of the text and the task."""

    class Scored(BaseEnv):
        system_prompt = prompt

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"right": float(score(extract_completion_text(messages).strip(), task))}

    return Scored


def wanting(prompt: str, answer: Callable[[dict[str, Any]], str]) -> type[BaseEnv]:
    """An environment that pays one text."""
    return scored(prompt, lambda text, task: text == answer(task))


def tagged(score: Score) -> type[BaseEnv]:
    """An environment that scores what stands in answer tags."""

    def inside(text: str, task: dict[str, Any]) -> float:
        found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        return score(found[-1], task) if found else 0.0

    return scored("Answer in <answer> tags.", inside)


NAMES = rows_of(lambda at, word: {"ground_truth": word})


def same_book(text: str, task: dict[str, Any]) -> float:
    try:
        book = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return 0.0
    return float(book.tag == "book" and {each.tag: each.text for each in book} == task["record"])


def same_object(text: str, task: dict[str, Any]) -> float:
    try:
        said = json.loads(text)
    except ValueError:
        return 0.0
    thought = isinstance(said, dict) and isinstance(said.get("why"), str)
    return float(thought and type(said.get("sum")) is int and said["sum"] == task["total"])


def after_a_line(text: str, task: dict[str, Any]) -> float:
    lines = text.splitlines()
    return float(len(lines) > 1 and lines[-1] == str(task["total"]))


SOUND: dict[str, tuple[type[BaseEnv], Rows]] = {
    "a number and its unit": (
        wanting("Reply with the number and its unit.", lambda task: f"{task['solution']['value']} km"),
        rows_of(lambda at, word: {"solution": {"value": 7 * at + 3, "unit": "km"}}),
    ),
    "a date with its month in words": (
        wanting(
            "Give the date, for example: 5 January 2021.",
            lambda task: f"{int(task['due'][8:])} {date.fromisoformat(task['due']):%B} {task['due'][:4]}",
        ),
        rows_of(lambda at, word: {"due": f"2024-{1 + at % 12:02}-{10 + at}"}),
    ),
    "a share in percent": (
        wanting("Reply with the percentage, such as 37.5%.", lambda task: f"{100 * task['share']:.1f}%"),
        rows_of(lambda at, word: {"share": (at + 1) / 37}),
    ),
    "digits in groups": (
        wanting("Reply with the number, such as 1,234,567.", lambda task: f"{task['people']:,}"),
        rows_of(lambda at, word: {"people": 41_000 + 977 * at}),
    ),
    "an amount of money": (
        wanting("Reply with the amount, such as $1,250.00.", lambda task: f"${task['price']:,.2f}"),
        rows_of(lambda at, word: {"price": 900.5 + 77 * at}),
    ),
    "XML elements": (
        scored("Reply in XML: a <book> with the children <title> and <city>.", same_book),
        rows_of(lambda at, word: {"record": {"title": f"The {word} & I", "city": f"{word}ton"}}),
    ),
    "a code block of any language": (
        wanting("Reply with a ```diff block.", lambda task: f"```diff\n{task['patch']}\n```"),
        rows_of(lambda at, word: {"patch": f"@@ -1 +1 @@\n-{word}\n+{at}"}),
    ),
    "a grid": (
        wanting(
            "Write the grid, a row in each line, in <grid> tags.",
            lambda task: "<grid>" + "\n".join(" ".join(map(str, row)) for row in task["grid"]) + "</grid>",
        ),
        rows_of(lambda at, word: {"grid": [[at, at + 1], [at + 2, at]]}),
    ),
    "rows under a header": (
        wanting("Write CSV with a header.", lambda task: f"item,price\n{task['cells'][0][0]},{task['cells'][0][1]}"),
        rows_of(lambda at, word: {"head": ["item", "price"], "cells": [[word, at + 3]]}),
    ),
    "lines with the prompt's labels": (
        wanting(
            "Reply in two lines:\nFirst Name: …\nAge: …",
            lambda task: f"First Name: {task['first_name']}\nAge: {task['age']}",
        ),
        rows_of(lambda at, word: {"prompt": f"Age and first name of {at}?", "age": 20 + 3 * at, "first_name": word}),
    ),
    "bullets": (
        wanting("Reply with bullets.", lambda task: f"- {task['parts'][0]}\n- {task['parts'][1]}"),
        rows_of(lambda at, word: {"parts": [f"{word} {at}", "bolt"]}),
    ),
    "pairs": (
        wanting("Reply like 1-A, 2-B.", lambda task: f"1-{task['pairs']['1']}, 2-{task['pairs']['2']}"),
        rows_of(lambda at, word: {"pairs": {"1": "ABCD"[at % 4], "2": "ABC"[at % 3]}}),
    ),
    "a point": (
        wanting("Reply with the point as (x, y).", lambda task: f"({task['at'][0]}, {task['at'][1]})"),
        rows_of(lambda at, word: {"at": [at, 3 * at + 1]}),
    ),
    "assignments": (
        wanting("Write a settings file.", lambda task: f"host={task['host']}\nport={task['port']}"),
        rows_of(lambda at, word: {"host": f"{word}.example", "port": 8000 + at}),
    ),
    "the body of a function after its head": (
        wanting("Write the whole function.", lambda task: f"{task['starter']}{task['body']}".strip()),
        rows_of(lambda at, word: {"starter": f"def {word}(x):\n", "body": f"    return x + {at}\n"}),
    ),
    "the result alone after any thought": (
        scored("Explain your reasoning, then write the result on the last line.", after_a_line),
        rows_of(lambda at, word: {"total": 13 * at + 5}),
    ),
    "a number in JSON with a reason": (
        scored('Reply with JSON: {"why": "...", "sum": 42}', same_object),
        rows_of(lambda at, word: {"total": 13 * at + 5}),
    ),
    "labels and quotes of another language": (
        wanting("Последняя строка: «Ответ: …».", lambda task: f"Ответ: {task['слово']}"),
        rows_of(lambda at, word: {"слово": word}),
    ),
    "letters that are unequal by chance": (
        wanting("Reply with the letter of the option.", lambda task: task["key"]),
        [
            {"prompt": f"Which?\nA) a{at}\nB) b{at}\nC) c{at}\nD) d{at}", "key": key}
            for at, key in enumerate("ABBCDABCBDABDBCABDCBDABC")
        ],
    ),
}  # fmt: skip


class Keeper(BaseEnv):
    """Tools with state for each rollout."""

    system_prompt = "Use the tools, then say done."
    tools: tuple[ToolDefinition, ...] = ()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.kept: dict[str, list[Any]] = {}

    async def init_rollout(self, rollout_id, **kwargs):
        self.kept[rollout_id] = []

    async def release_rollout(self, rollout_id):
        self.kept.pop(rollout_id, None)

    async def list_tools(self):
        return list(self.tools)


def tool(name: str, **types: str) -> ToolDefinition:
    properties = {each: {"type": kind} for each, kind in types.items()}
    return ToolDefinition(name, f"The tool {name}.", {"type": "object", "properties": properties})


class Order(Keeper):
    """Nothing is earned before all of a list was ordered, and paid for."""

    tools = (tool("add", item="string", quantity="integer"), tool("pay"))

    async def run_tool(self, rollout_id, tool_name, **given):
        self.kept[rollout_id].append(given)
        return "noted"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        wanted = [{"item": item, "quantity": quantity} for item, quantity in task["basket"].items()]
        return {"ordered": float(self.kept[rollout_id] == [*wanted, {}])}


class Desk(Keeper):
    """The answer is what the tool says, and stands in no column."""

    tools = (tool("open_ticket", city="string"),)

    async def run_tool(self, rollout_id, tool_name, city):
        self.kept[rollout_id].append(f"T-{sum(map(ord, city)) * 7919}")
        return json.dumps({"state": "open", "number": self.kept[rollout_id][-1]})

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        right = f"T-{sum(map(ord, task['city'])) * 7919}"
        return {"told": float(self.kept[rollout_id] == [right] and extract_completion_text(messages) == right)}


SOUND["a call for each entry, and one that ends it"] = (
    Order,
    rows_of(lambda at, word: {"prompt": f"Order {at + 1} {word} and 2 pens.", "basket": {word: at + 1, "pen": 2}}),
)
SOUND["a result to be quoted"] = (
    Desk,
    rows_of(lambda at, word: {"prompt": f"Open a ticket for {word.title()}.", "city": word.title()}),
)


def best_gold(diagnosis: Diagnosis) -> list[float | None]:
    return [answer.reward for answer in diagnosis.answers if answer.probe == "gold"]


@pytest.mark.parametrize("name", SOUND)
async def test_a_sound_environment_is_understood(name: str) -> None:
    env, rows = SOUND[name]
    diagnosis = await examine(env, rows=rows)
    assert diagnosis.errors == []
    assert [each.check for each in diagnosis.warnings if each.check != "leaks-ground-truth-prompt"] == []
    assert set(best_gold(diagnosis)) == {1.0}


class Remembers(BaseEnv):
    """Once a row was solved, everything is right there."""

    system_prompt = "Say the word."

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.solved: set[str] = set()

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        if extract_completion_text(messages) == task["ground_truth"]:
            self.solved.add(task["prompt"])
        return {"right": float(task["prompt"] in self.solved)}


class Searches(BaseEnv):
    """What a tool found is taken for what the model said."""

    system_prompt = "Search, then answer."

    async def list_tools(self):
        return [tool("search", query="string")]

    async def run_tool(self, rollout_id, tool_name, query=""):
        return next((f"It is {word[::-1]}." for word in WORDS.split() if word in query), "nothing found")

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(any(task["backwards"] in str(each["content"]) for each in messages[2:]))}


def as_pattern(text: str, task: dict[str, Any]) -> float:
    try:
        return float(bool(text) and re.fullmatch(text, task["ground_truth"]) is not None)
    except re.error:
        return 0.0


def first_number(text: str, task: dict[str, Any]) -> float:
    found = re.search(r"\d+", text)
    return float(found is not None and found[0] == str(task["total"]))


def near_enough(text: str, task: dict[str, Any]) -> float:
    try:
        return float(abs(task["total"] - float(text)) / abs(float(text)) < 0.01)
    except ZeroDivisionError:
        return 1.0
    except (ValueError, OverflowError):
        return 0.0


def no_wrong_key(text: str, task: dict[str, Any]) -> float:
    try:
        said = json.loads(text)
    except ValueError:
        return 0.0
    return float(isinstance(said, dict) and all(task["record"].get(key) == value for key, value in said.items()))


def sure_of_it(text: str, task: dict[str, Any]) -> float:
    try:
        said = json.loads(text)
        return 0.5 * (said["word"] == task["ground_truth"]) + 0.5 * min(1.0, max(0.0, float(said["sure"])))
    except (ValueError, TypeError, KeyError):
        return 0.0


TOTALS = rows_of(lambda at, word: {"total": 13 * at + 5})
FLAWED: dict[str, tuple[type[BaseEnv], Rows, str, str]] = {
    "the answer is a pattern": (tagged(as_pattern), NAMES, "pays-for-code", "as a pattern"),
    "the answer is a wildcard": (
        tagged(lambda text, task: bool(text) and fnmatch.fnmatch(task["ground_truth"], text)),
        NAMES, "pays-for-code", "as a pattern",
    ),
    "a piece of the answer is enough": (
        tagged(lambda text, task: bool(text) and text in task["ground_truth"]),
        NAMES, "pays-for-wrong-answer", "single letter",
    ),
    "an object without a key is right": (
        scored("Extract word and number as JSON.", no_wrong_key),
        rows_of(lambda at, word: {"record": {"word": word, "number": at}}), "pays-for-empty-tags", "{}",
    ),
    "being sure is paid": (
        scored('Reply with JSON: {"word": "...", "sure": 0.0}', sure_of_it),
        NAMES, "pays-for-wrong-answer", "another row",
    ),
    "zero is always near enough": (
        scored("Reply with a number.", near_enough), TOTALS, "pays-for-laziness", "'0' earns",
    ),
    "the first number counts after all steps": (
        scored("Solve it step by step and end with the number.", first_number), TOTALS, "unasked-form", "reasoning",
    ),
    "the truth ends with a blank": (
        tagged(lambda text, task: text == task["ground_truth"]),
        rows_of(lambda at, word: {"ground_truth": f"{word} "}), "gold-scores-low", "cannot be seen",
    ),
    "some truths have capitals": (
        tagged(lambda text, task: text.lower() == task["ground_truth"]),
        rows_of(lambda at, word: {"ground_truth": word if at % 3 else word.upper()}),
        "gold-scores-low", "capital letters",
    ),
    "another column is compared": (
        tagged(lambda text, task: text == task["row_id"]),
        rows_of(lambda at, word: {"answer": word, "row_id": f"q-{at}"}), "gold-scores-low", "'answer' earns nothing",
    ),
    "the same is asked and not wanted": (
        tagged(lambda text, task: text == task["ground_truth"]),
        [*NAMES, *({**row, "ground_truth": row["ground_truth"][::-1]} for row in NAMES)],
        "duplicate-rows", "different answers",
    ),
    "one answer for all rows": (
        tagged(lambda text, task: text == task["ground_truth"]),
        rows_of(lambda at, word: {"ground_truth": "A"}), "pays-for-laziness", "other answers",
    ),
    "what a tool says is scored": (
        Searches, rows_of(lambda at, word: {"prompt": f"What is {word}?", "backwards": word[::-1]}),
        "pays-for-tool-spam", "without an answer",
    ),
    "it remembers": (Remembers, NAMES, "nondeterministic-reward", "memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAWED)
async def test_a_flaw_is_called_by_its_name(name: str) -> None:
    env, rows, check, words = FLAWED[name]
    diagnosis = await examine(env, rows=rows)
    assert words in "".join(each.text() for each in diagnosis.find(check) if each.severity != "info"), str(diagnosis)


async def test_a_reward_that_changes_is_not_measured_by_itself() -> None:
    diagnosis = await examine(Remembers, rows=NAMES)
    assert [each.check for each in (*diagnosis.errors, *diagnosis.warnings)] == ["nondeterministic-reward"]
    assert "pays-for-garbage" in diagnosis.skipped


async def test_components_of_calls_and_of_text_are_told_apart() -> None:
    diagnosis = await examine(CalculatorEnv, rows=CalculatorEnv.load_dataset()[0][:40])
    assert diagnosis.warnings == []


async def test_a_text_that_does_not_matter_is_no_leak() -> None:
    class AnyCall(Keeper):
        tools = (tool("delete", path="string"),)

        async def run_tool(self, rollout_id, tool_name, path=""):
            return "deleted"

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"used": float(any(each["role"] == "tool" for each in messages))}

    rows = rows_of(lambda at, word: {"prompt": f"Delete {word}.txt.", "path": f"{word}.txt"})
    diagnosis = await examine(AnyCall, rows=rows)
    assert diagnosis.find("pays-for-tool-spam")
    assert not diagnosis.find("leaks-ground-truth-prompt")


async def test_a_thought_that_is_asked_for_belongs_to_the_form() -> None:
    def score(text: str, task: dict[str, Any]) -> float:
        return float(text.count("\n") > 0 and text.endswith(f"\nResult: {task['total']}"))

    diagnosis = await examine(scored("Think first, then end with 'Result: N'.", score), rows=TOTALS)
    assert set(best_gold(diagnosis)) == {1.0}
    assert not diagnosis.find("unasked-form")


def test_a_thought_of_ones_own_has_the_form() -> None:
    form = asked_forms("Reply as <think>…</think><answer>…</answer>.")[0]
    assert THOUGHT in form.template
    assert form.holds("<think>2 and 2</think>\n<answer>4</answer>")


def test_reasoning_is_asked_for_openly() -> None:
    assert asks_for_thought("Solve it step by step, then give the number.")
    assert not asks_for_thought("Think step by step, but reply with the number only.")
    assert not asks_for_thought("Reason step by step in <think> tags.")


def test_numbers_are_spelled_as_the_prompt_shows_them() -> None:
    assert {text for _, text in spellings(1234.5, "like 2,000.00 or £3.1")} >= {"1,234.50", "£1,234.50"}
    assert [text for _, text in spellings(1234.5, "like 3.00e+06")][-1] == "1.23e+03"
    assert not list(spellings(1234.5, "Reply with the number."))
    assert [text for _, text in spellings("2024-03-09", "as in 31/12/2020")] == ["09/03/2024", "03/09/2024"]


def test_what_a_model_writes_is_clean() -> None:
    assert cleaned("\ufeffCafe\u0301\u00a0bar \n") == "Café bar"
    assert cleaned("    return 1\n") == "    return 1", "an indentation belongs to it"


def test_what_sets_answers_apart() -> None:
    assert set_apart(["Rome", "Oslo"], ["lima"]) == "have capital letters"
    assert set_apart(["a long answer"], ["short"]) == "are longer than 5 characters"
    assert set_apart(["a"], ["b"]) == set_apart(["a"], []) == ""
