"""Verdicts on environments as people write them: sound ones are left alone, and a flaw is called by its name."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from benchmax.doctor import Pace, examine
from benchmax.doctor.gold.templates import filled, filled_in_order
from benchmax.doctor.gold.value_formats import named
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolDefinition

Rows = list[dict[str, Any]]
WORDS = "river stone cloud ember frost grain harbor island jungle kettle lantern meadow needle orchard pepper quarry"
SUMS = [{"prompt": f"What is {n} + {2 * n}?", "total": 3 * n} for n in range(7, 31)]


def rows_of(make: Callable[[int, str], dict[str, Any]]) -> Rows:
    return [make(at, word) for at, word in enumerate(WORDS.split())]


def wanting(prompt: str, answer: Callable[[dict[str, Any]], str]) -> type[BaseEnv]:
    """An environment that pays one text."""

    class Wanting(BaseEnv):
        system_prompt = prompt

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"right": float(extract_completion_text(messages).strip() == answer(task))}

    return Wanting


def csv_of(task: dict[str, Any]) -> str:
    lines = ["name,size", *(f"{row['name']},{row['size']}" for row in task["table"])]
    return "```csv\n" + "\n".join(lines) + "\n```"


SOUND = {
    "a date in the order the prompt names": (
        wanting("Reply in the form DD.MM.YYYY.", lambda task: ".".join(reversed(task["due"].split("-")))),
        rows_of(lambda at, word: {"prompt": f"When is the {word} fair?", "due": f"2024-0{1 + at % 9}-{10 + at}"}),
    ),
    "rows as CSV": (
        wanting("Give the table in a ```csv code block.", csv_of),
        rows_of(
            lambda at, word: {"prompt": f"Table {at}", "table": [{"name": word, "size": at}, {"name": "x", "size": 1}]}
        ),
    ),
    "a letter in the place of the prompt's letter": (
        wanting("End with a line like: Final: (B)", lambda task: f"Final: ({task['key']})"),
        rows_of(lambda at, word: {"prompt": f"Which {word}?", "key": "ABCD"[at * 7 % 4]}),
    ),
    "a fraction of two columns": (
        wanting(
            r"Put it as \boxed{\frac{a}{b}}.", lambda task: rf"\boxed{{\frac{{{task['top']}}}{{{task['below']}}}}}"
        ),
        rows_of(lambda at, word: {"prompt": f"The share of {word}?", "top": at + 1, "below": 40 + at}),
    ),
    "attributes of an element": (
        wanting('Reply with one element, like <point x="3" y="-1"/>.', lambda t: f'<point x="{t["x"]}" y="{t["y"]}"/>'),
        rows_of(lambda at, word: {"prompt": f"Where is the {word}?", "x": at, "y": 2 * at - 9}),
    ),
    "a switch in the prompt's words": (
        wanting('Say "odd" or "even", one word.', lambda task: "odd" if task["is_odd"] else "even"),
        rows_of(lambda at, word: {"prompt": f"The {word} has {at * 3} parts.", "is_odd": at * 3 % 2 == 1}),
    ),
    "a label by its name": (
        wanting("Call it low, middle or high.", lambda task: ("low", "middle", "high")[task["label"]]),
        rows_of(lambda at, word: {"prompt": f"The {word} is at {at}.", "label": at % 3}),
    ),
    "the first of several accepted words for each key": (
        wanting(
            "Answer so: JA: …; DE: …", lambda task: f"JA: {task['accepted']['ja'][0]}; DE: {task['accepted']['de'][0]}"
        ),
        rows_of(lambda at, word: {"prompt": word, "accepted": {"ja": [word[::-1], word], "de": [word[1:], "der"]}}),
    ),
    "a number under a key": (
        wanting('Answer as JSON, like {"sum": 7}.', lambda task: json.dumps({"sum": task["total"]})),
        SUMS,
    ),
    "a ranking in the prompt's form": (
        wanting("Answer in the form: X > Y > Z", lambda task: " > ".join(task["ranking"])),
        rows_of(lambda at, word: {"prompt": f"Rank for {word}.", "ranking": [word, str(at), f"{at}a"]}),
    ),
    "names joined by and": (
        wanting("Name both, joined by 'and'.", lambda task: " and ".join(task["pair"])),
        rows_of(lambda at, word: {"prompt": f"Pair {at}?", "pair": [word, f"{at}th"]}),
    ),
    "a row's own text in JSON": (
        wanting("Answer with the word alone.", lambda task: str(task["word"])),
        rows_of(lambda at, word: {"prompt": f'Which word has {{"id": {at}, "kind": "thing {at}"}}?', "word": word}),
    ),
    "a label before the row's own text": (
        wanting("Answer with the word alone.", lambda task: str(task["word"])),
        rows_of(lambda at, word: {"prompt": f"Question: what is number {at}?", "word": word}),
    ),
    "an instruction before a colon": (
        wanting("Label the size: low, middle or high.", lambda task: str(task["word"])),
        rows_of(lambda at, word: {"prompt": f"The {word}?", "word": ("low", "middle", "high")[at % 3]}),
    ),
    "an example in another script": (
        wanting("日付だけを書いてください。例:令和6年3月9日。", lambda task: str(task["day"])),
        rows_of(lambda at, word: {"prompt": f"{word}?", "day": f"平成{at + 1}年{1 + at % 9}月{at + 3}日"}),
    ),
    "a column beside lists of texts": (
        wanting("Cover the first, not the second. Put it in <rule> tags.", lambda task: f"<rule>{task['rule']}</rule>"),
        rows_of(
            lambda at, word: {
                "prompt": f"Cover: {word} {at}, {at}. Spare: {at}x, {word}s.",
                "cover": [f"{word} {at}", str(at), f"{at + 1}"],
                "spare": [f"{at}x", f"{word}s", f"{at}y"],
                "rule": f"[a-z]{{{len(word)}}} {at}",
            }
        ),
    ),
    "a switch for each option": (
        wanting(
            "End with a line such as 'Answer: A, C'.",
            lambda task: (
                "Answer: " + (", ".join(letter for letter, on in zip("ABC", task["fits"], strict=True) if on) or "none")
            ),
        ),
        rows_of(
            lambda at, word: {
                "prompt": f"Which fit {word}?\nA) {at}\nB) {at + 1}\nC) {at * 2}",
                "fits": [at % 2 > 0, at % 3 > 0, at % 5 > 0],
            }
        ),
    ),
    "texts to find, and none in some rows": (
        wanting("List them, one per line.", lambda task: "\n".join(task["found"]) or "none"),
        rows_of(
            lambda at, word: {"prompt": f"Took {word} and x{at}.", "found": [word, f"x{at}"][: at % 3]},
        ),
    ),
}


@pytest.mark.parametrize("kind", SOUND)
async def test_the_gold_answer_of_a_sound_environment_is_found(kind: str) -> None:
    env, rows = SOUND[kind]
    diagnosis = await examine(env, rows=rows, pace="quick")
    assert diagnosis.errors == []
    assert not diagnosis.find("unasked-form")
    assert max(answer.reward or 0.0 for answer in diagnosis.answers if answer.probe == "gold") == 1.0


def test_choices_and_templates_are_read_out_of_the_prompt() -> None:
    assert named("Is it spam or ham?") == [["spam", "ham"]]
    assert named("one of [low, middle, high]") == [["low", "middle", "high"]]
    assert named("Answer yes/no.") == [["yes", "no"]]
    assert named("Answer with the city.") == []
    assert list(filled_in_order("Write it as (a, b).", ["3", "4"])) == ["(3, 4)"]
    assert list(filled_in_order("Reply like (48.85, 2.35).", ["-6.5", "7"])) == ["(-6.5, 7)"]
    assert list(filled_in_order("An interval like [10, 20].", ["14.5"])) == ["[14.5, 14.5]"]
    assert list(filled_in_order("An interval like [10, 20].", ["Oslo", "Rome"])) == []
    assert list(filled_in_order("Write it as a/b.", ["3", "4"])) == ["3/4"]
    assert '<p x="3" y="4"/>' in list(filled('like <p x="0" y="0"/>', {"x": "3", "y": "4"}))


# Traps


class Digits(BaseEnv):
    """Reads only what isdigit() accepts, as int() does not."""

    system_prompt = "Answer with the number only."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages).strip()
        return {"right": float(text.isdigit() and int(text) == task["total"])}


class Remembers(Digits):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen: set[str] = set()

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages).strip()
        fresh, right = text not in self.seen, text == str(task["total"])
        self.seen.add(text)
        return {"right": float(right), "new": 0.5 * (right and fresh)}


class Uses(Digits):
    """Takes from the task while it counts."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(extract_completion_text(messages).strip() == str(task.pop("total")))}


class WantsMore(Digits):
    """A parameter that the schema does not require."""

    async def list_tools(self):
        properties = {"value": {"type": "number"}, "digits": {"type": "integer", "minimum": 0}}
        schema = {"type": "object", "properties": properties, "required": ["value"]}
        return [ToolDefinition("round", "Rounds a number.", schema)]

    async def run_tool(self, rollout_id, tool_name, value, digits):
        return str(round(value, digits))


class Hedged(BaseEnv):
    system_prompt = "Does it hold? Answer yes or no, with a reason."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = set(re.findall(r"\w+", extract_completion_text(messages).lower()))
        return {"right": float(("yes" if task["holds"] else "no") in said)}


class ReadsAllTurns(BaseEnv):
    system_prompt = "Answer with the word only."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = [str(message.get("content")) for message in messages if message["role"] == "assistant"]
        return {"right": float(any(task["word"] in text for text in said))}


class Costs(Digits):
    """Saying nothing is best."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.search(r"\d{1,6}", extract_completion_text(messages))
        return {"off": -abs(int(found[0]) - task["total"]) / 1000 if found else 0.0}


class OtherUnit(Digits):
    system_prompt = "Answer in grams, with the number only."


def talk(at: int, word: str) -> dict[str, Any]:
    turns = [("user", f"Guess {at}."), ("assistant", f"Perhaps {word}."), ("user", "Sure? Answer again.")]
    return {"messages": [{"role": role, "content": text} for role, text in turns], "word": word}


HOLDS = rows_of(lambda at, word: {"prompt": f"The {word} weighs more than {at}.", "holds": at % 2 == 0})
TRAPS = {
    "reward-raises": (Digits, SUMS),
    "nondeterministic-reward": (Remembers, SUMS),
    "reward-mutates-messages": (Uses, SUMS),
    "tool-raises": (WantsMore, SUMS),
    "pays-for-shotgun": (Hedged, HOLDS),
    "reward-scores-prompt-turns": (ReadsAllTurns, rows_of(talk)),
    "nothing-earns": (Costs, SUMS),
    "gold-scores-low": (OtherUnit, [{**row, "answer": row["total"] * 1000} for row in SUMS]),
}


@pytest.mark.parametrize("check", TRAPS)
async def test_a_trap_is_called_by_its_name(check: str) -> None:
    env, rows = TRAPS[check]
    assert (await examine(env, rows=rows, pace="quick")).find(check)


async def test_an_answer_that_is_right_in_part_tells_components_apart() -> None:
    class Booking(BaseEnv):
        system_prompt = "Reply with a JSON object with the keys word and size."

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            try:
                said = json.loads(extract_completion_text(messages))
            except ValueError:
                said = None
            said = said if isinstance(said, dict) else {}
            return {key: 0.5 * (said.get(key) == task[key]) for key in ("word", "size")}

    rows = rows_of(lambda at, word: {"prompt": f"Box {at}?", "word": word, "size": at + 100})
    diagnosis = await examine(Booking, rows=rows, pace="quick")
    assert not diagnosis.find("mirrored-component")
    assert diagnosis.errors == []


async def test_guessing_among_few_answers_is_no_laziness() -> None:
    env = wanting("Call it low, middle or high.", lambda task: str(task["word"]))
    even = rows_of(lambda at, word: {"prompt": f"The {word}?", "word": ("low", "middle", "high")[at % 3]})
    assert [f.severity for f in (await examine(env, rows=even, pace="quick")).find("pays-for-laziness")] == ["info"]
    skewed = [{**row, "word": "low"} if at % 4 else row for at, row in enumerate(even)]
    found = (await examine(env, rows=skewed, pace="quick")).find("pays-for-laziness")
    assert [finding.severity for finding in found] == ["warning"]


async def test_a_tool_that_hangs_is_waited_for_once() -> None:
    begun: list[str] = []

    class Waits(Digits):
        async def list_tools(self):
            return [ToolDefinition("wait", "Waits.", {"type": "object", "properties": {}})]

        async def run_tool(self, rollout_id, tool_name):
            begun.append(rollout_id)
            await asyncio.Event().wait()

    diagnosis = await examine(Waits, rows=SUMS, pace=Pace(tool_seconds=1.0))
    assert diagnosis.find("tool-raises")
    assert diagnosis.find("reward-raises"), "the reward is examined all the same"
    assert len(begun) == 1


async def test_strategies_that_are_lucky_on_a_few_rows_are_tried_on_more() -> None:
    class Ordering(BaseEnv):
        system_prompt = "Put the numbers in order, like <answer>2 > 1 > 3</answer>."

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            found = re.search(r"<answer>(.*?)</answer>", extract_completion_text(messages))
            said = found[1].split(" > ") if found else []
            same = [a == b for a, b in zip(said, map(str, task["order"]), strict=False)]
            return {"order": (sum(same) / 5) ** 2 if len(said) == 5 else 0.0}

    rng = Random(9)
    rows = [{"prompt": f"Row {at}", "order": rng.sample(range(1, 6), 5)} for at in range(40)]
    for seed in range(3):
        diagnosis = await examine(Ordering, rows=rows, pace="quick", seed=seed)
        assert not diagnosis.find("pays-for-laziness")


async def test_evaluation_rows_that_differ_in_case_and_blanks_are_trained_on() -> None:
    env = wanting("Answer with the word alone.", lambda task: str(task["word"]))
    rows = rows_of(lambda at, word: {"prompt": f"What is the plural of {word}?", "word": f"{word}s"})
    held_out = [{**row, "prompt": f"{row['prompt'].upper()} "} for row in rows[:5]]
    diagnosis = await examine(env, rows=rows, eval_rows=held_out, pace="quick")
    assert "5 of 5" in diagnosis.find("train-eval-overlap")[0].text()


async def test_an_answer_that_stands_in_an_earlier_turn_is_to_be_found_there() -> None:
    def asked(at: int, word: str) -> dict[str, Any]:
        turns = [("user", f"I live in {word}."), ("assistant", "Thanks."), ("user", f"Where do I live ({at})?")]
        return {"messages": [{"role": role, "content": text} for role, text in turns], "word": word}

    env = wanting("Answer with the word alone.", lambda task: str(task["word"]))
    (found,) = (await examine(env, rows=rows_of(asked), pace="quick")).find("leaks-ground-truth-prompt")
    assert found.severity == "info"
    rows = rows_of(lambda at, word: {"prompt": f"Where is it? (not told: {word})", "word": word})
    (found,) = (await examine(env, rows=rows, pace="quick")).find("leaks-ground-truth-prompt")
    assert found.severity == "warning"
