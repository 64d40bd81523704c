"""Good answers are found whatever the truth is called and however it is to be written."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmax.doctor import examine
from benchmax.doctor.gold.answer_formats import asked_forms
from benchmax.doctor.gold.answer_search import GoldFinder
from benchmax.doctor.gold.demonstrations import Demonstrator
from benchmax.doctor.gold.ground_truths import truths
from benchmax.doctor.gold.sql_queries import tables
from benchmax.doctor.lazy_strategies import earnings, play_lazily
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import load_examples
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.errors import ToolError
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"] * 3


class Exact(BaseEnv):
    """Paid when the whole answer is what `wanted` says."""

    @staticmethod
    def wanted(task: dict[str, Any]) -> str:
        raise NotImplementedError

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"exact": float(extract_completion_text(messages).strip() == self.wanted(task))}


class Table(Exact):
    system_prompt = "Reply with a JSON object with the keys name and age."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        try:
            said = json.loads(extract_completion_text(messages))
        except ValueError:
            return {"exact": 0.0}
        return {"exact": float(said == task["person"])}


class Ordered(Exact):
    system_prompt = "Sort the names. Put them in <sorted> tags, separated by commas."
    wanted = staticmethod(lambda task: f"<sorted>{', '.join(task['in_order'])}</sorted>")


class Alternatives(Exact):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"exact": float(extract_completion_text(messages).strip() in task["accepted"])}


class Letter(Exact):
    system_prompt = "Your last line must be RESULT= followed by the letter."
    wanted = staticmethod(lambda task: f"RESULT={'ABC'[task['index']]}")


class YesNo(Exact):
    system_prompt = "Answer YES or NO, in capitals."
    wanted = staticmethod(lambda task: "YES" if task["is_name"] else "NO")


class Nested(Exact):
    system_prompt = "Give the number as \\boxed{number}."
    wanted = staticmethod(lambda task: f"\\boxed{{{task['info']['solution']['number']}}}")


class Sentence(Exact):
    system_prompt = "Reply with exactly: The code of NAME is CODE."
    wanted = staticmethod(lambda task: f"The code of NAME is {task['code']}.")


class Columns(Exact):
    system_prompt = "Answer in YAML, in this form:\n\nshelf: Name\nparcels:\n  - AB12"
    wanted = staticmethod(
        lambda task: f"shelf: {task['shelf']}\nparcels:\n" + "\n".join(f"  - {each}" for each in task["parcels"])
    )


class Element(Exact):
    system_prompt = "Extract the person as XML: <person><name>...</name><age>...</age></person>"
    wanted = staticmethod(lambda task: f"<person><name>{task['name']}</name><age>{task['age']}</age></person>")


class Record(Exact):
    system_prompt = "Turn the note into one line: id;name;amount"
    wanted = staticmethod(lambda task: ";".join(str(value) for value in task["record"].values()))


class Reasoned(Exact):
    system_prompt = 'Reply with a JSON object with the keys "choice" (the name) and "reason" (a short sentence).'

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        try:
            said = json.loads(extract_completion_text(messages))
        except ValueError:
            return {"exact": 0.0}
        reasoned = isinstance(said, dict) and len(str(said.get("reason", "")).split()) > 2
        return {"exact": float(reasoned and said.get("choice") == task["odd"])}


class Stepwise(Exact):
    system_prompt = "Work it out step by step, one step a line, and end with a line 'Answer: N'."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        lines = extract_completion_text(messages).splitlines()
        return {"exact": float(len(lines) > 1 and lines[-1] == f"Answer: {task['answer']}")}


class Backwards(Exact):
    system_prompt = "Give the words in reverse order, separated by ' > '."
    wanted = staticmethod(lambda task: " > ".join(reversed(task["words"])))


class Program(Exact):
    system_prompt = "Write the function in a ```python block."
    wanted = staticmethod(lambda task: f"```python\n{task['reference']}\n```")


class Labelled(Exact):
    system_prompt = "Classify it. Last line: LABEL=<label>, one of spam, ham."
    wanted = staticmethod(lambda task: f"LABEL={task['y']}")


class Bracketed(Exact):
    system_prompt = "Give the code between double square brackets, like [[code]]."
    wanted = staticmethod(lambda task: f"[[{task['code']}]]")


class Thinking(Exact):
    system_prompt = "Think in <think></think> tags, then answer in <final></final> tags."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.search(r"<think>.+</think>\s*<final>(.*?)</final>", extract_completion_text(messages), re.DOTALL)
        return {"exact": float(bool(found) and found[1] == task["output"])}


class Refuses(BaseEnv):
    system_prompt = "Decline politely what may not be told; else say: Ticket NUMBER opened."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = extract_completion_text(messages).lower()
        good = f"ticket {task['ticket']} opened" in said if task["allowed"] else "sorry" in said
        return {"handled": float(good)}


SOUND: list[tuple[type[BaseEnv], Any]] = [
    (Table, lambda at, name: {"person": {"name": name, "age": 20 + at}}),
    (Ordered, lambda at, name: {"in_order": sorted([name, f"Zed{at}"])}),
    (Alternatives, lambda at, name: {"accepted": [f"{name} {at}", f"{at} {name}"]}),
    (Letter, lambda at, name: {"index": at % 3}),
    (YesNo, lambda at, name: {"is_name": at % 2 == 0}),
    (Nested, lambda at, name: {"info": {"solution": {"number": 100 + at}}}),
    (Sentence, lambda at, name: {"code": f"X{at}"}),
    (Columns, lambda at, name: {"shelf": name, "parcels": [f"A{at}", f"B{at}"]}),
    (Element, lambda at, name: {"name": name, "age": 20 + at}),
    (Record, lambda at, name: {"record": {"id": 100 + at, "name": name, "amount": at * 3}}),
    (Reasoned, lambda at, name: {"odd": f"{name}{at}"}),
    (Stepwise, lambda at, name: {"answer": at * 7}),
    (Backwards, lambda at, name: {"words": [name, f"Z{at}", "end"]}),
    (Program, lambda at, name: {"reference": f"def f(x):\n    return x + {at}"}),
    (Labelled, lambda at, name: {"y": ["spam", "ham"][at % 2]}),
    (Bracketed, lambda at, name: {"code": str(4000 + at)}),
    (Thinking, lambda at, name: {"output": f"{name}{at}"}),
    (Refuses, lambda at, name: {"ticket": 7000 + at, "allowed": at % 2 == 1}),
]


def rows(make: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"Number {at} of {name}?", **make(at, name)} for at, name in enumerate(NAMES)]


def player_on(host: EnvHost) -> ProbePlayer:
    return ProbePlayer(host, RolloutSettings())


@pytest.mark.parametrize(("env", "make"), SOUND, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_sound_environment_has_no_errors_and_every_row_a_solution(env: type[BaseEnv], make: Any) -> None:
    examples = load_examples(rows(make), env).examples
    diagnosis = await examine(env, rows=rows(make))
    assert diagnosis.find("nothing-earns") == []
    assert diagnosis.find("dead-component") == []
    async with EnvHost(env) as host:
        player = player_on(host)
        gold = await GoldFinder(player).find(examples)
        shown = [await Demonstrator(player, gold).solve(example) for example in examples]
    assert gold.works
    assert [each.reward if each else None for each in shown] == [1.0] * len(examples)


async def test_where_nothing_earns_there_is_one_finding_with_a_stub_to_paste() -> None:
    class Secret(Exact):
        """The code is nowhere in the row."""

        system_prompt = "Answer in <code> tags."
        wanted = staticmethod(lambda task: "xyzzy")

    diagnosis = await examine(Secret, rows=rows(lambda at, name: {"hidden": at, "other": name}))
    assert [finding.check for finding in diagnosis.errors] == ["nothing-earns"]
    stub = diagnosis.errors[0].code
    namespace: dict[str, Any] = {}
    exec(f"class Env:\n    {stub.replace(chr(10), chr(10) + '    ')}", namespace)
    example = make_example([{"role": "user", "content": "?"}], {"hidden": 7, "other": "x"})
    assert namespace["Env"].gold_completion(example) == "<code>7</code>"


async def test_a_check_that_played_no_probe_says_skipped() -> None:
    class Anything(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"brief": float(0 < len(extract_completion_text(messages)) < 10)}

    diagnosis = await examine(Anything, rows=[{"prompt": f"Say {name} {at}"} for at, name in enumerate(NAMES)])
    skipped = set(diagnosis.skipped)
    assert {"pays-for-wrong-answer", "pays-for-shotgun", "pays-for-format-alone", "pays-for-tool-spam"} <= skipped
    assert {"init-fails", "release-fails"} <= skipped


def test_forms_are_read_out_of_the_prompt() -> None:
    def written(prompt: str) -> list[str]:
        return [form.write("42") for form in asked_forms(prompt)]

    assert "<answer>42</answer>" in written("put your answer in <answer> tags.")
    assert "Price: 42" in written("End with a line such as: Price: 12")
    assert "Ticket 42 opened" in written("For anything else confirm with: Ticket NUMBER opened.")
    assert '{"city": "42"}' in written('Reply with JSON like {"city": "Paris"}.')
    assert "```sql\n42\n```" in written("Answer in a ```sql block.")
    assert "The total is 42 dollars." in written("Finish with 'The total is X dollars.'")
    assert written("Answer with the city alone.") == []


def test_a_form_tells_whether_an_answer_is_in_it() -> None:
    (form, *_) = asked_forms("put your answer in <answer> tags.")
    assert form.holds("so <answer>4</answer>")
    assert not form.holds("the answer is 4")
    assert not form.holds("</answer> 4 <answer>")


def test_readings_keep_their_label_from_row_to_row() -> None:
    first, second = (
        {truth.label: truth.text for truth in truths(make_example([{"role": "user", "content": "?"}], task))}
        for task in ({"target": ["a", "b"], "n": 1}, {"target": ["c", "d"], "n": 2})
    )
    assert first["target with spaces"] == "a b"
    assert second["target with spaces"] == "c d"
    assert (first["n as a letter"], second["n as a letter"]) == ("B", "C")


# Solutions by tool calls


class Tooled(BaseEnv):
    """State of its own for each rollout."""

    system_prompt = "Use the tools. Answer in <answer> tags."

    def __init__(self, **kwargs: Any) -> None:
        self.world: dict[str, Any] = {}

    async def init_rollout(self, rollout_id, **world):
        self.world[rollout_id] = {**world}

    async def release_rollout(self, rollout_id):
        self.world.pop(rollout_id, None)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.search(r"<answer>(.*?)</answer>", extract_completion_text(messages[-1:]))
        asked = any(message["role"] == "tool" for message in messages.completion)
        return {"asked": 0.2 * asked, "right": 0.8 * (bool(found) and found[1] == task["code"])}


def text_tool(name: str, parameter: str) -> ToolDefinition:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return ToolDefinition(name, f"{name} of a {parameter}.", schema)


class TwoLookUps(Tooled):
    async def list_tools(self):
        return [text_tool("badge", "person"), text_tool("door", "badge")]

    async def run_tool(self, rollout_id, tool_name, **arguments):
        (key,) = arguments.values()
        return self.world[rollout_id]["badges" if tool_name == "badge" else "doors"].get(key, "unknown")


def two_look_ups(at: int, name: str) -> dict[str, Any]:
    world = {"badges": {name: f"B{at}", "Nobody": "B0"}, "doors": {f"B{at}": f"D{at * 7}", "B0": "D0"}}
    return {"code": f"D{at * 7}", "init_rollout_args": world}


class Counter(Tooled):
    async def list_tools(self):
        return [ToolDefinition("up", "Adds one."), ToolDefinition("down", "Takes one away.")]

    async def run_tool(self, rollout_id, tool_name, **arguments):
        self.world[rollout_id]["at"] += 1 if tool_name == "up" else -1
        return str(self.world[rollout_id]["at"])

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"there": float(self.world[rollout_id]["at"] == task["goal"])}


class Shop(Tooled):
    async def list_tools(self):
        return [text_tool("query", "sql")]

    async def run_tool(self, rollout_id, tool_name, sql):
        import sqlite3

        database = sqlite3.connect(":memory:")
        database.execute("CREATE TABLE orders (customer, item, pieces)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", self.world[rollout_id]["orders"])
        try:
            return json.dumps(database.execute(sql).fetchall())
        except sqlite3.Error as error:
            raise ToolError(str(error)) from None
        finally:
            database.close()


class ShopOfOrders(Shop):
    system_prompt = "Ask the table orders(customer, item, pieces). Answer in <answer> tags."


def orders(at: int, name: str) -> dict[str, Any]:
    table = [[name, "pens", 30 + at], [name, "cups", 60 + at], ["Zoe", "pens", 90 + at]]
    return {"code": str(60 + at), "init_rollout_args": {"orders": table}}


class Game(Tooled):
    """A hidden number, and a tool that says in which direction it lies."""

    system_prompt = "Find the number between 1 and 30."

    async def list_tools(self):
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
        return [ToolDefinition("guess", "Says higher, lower or right.", schema)]

    async def run_tool(self, rollout_id, tool_name, number):
        world = self.world[rollout_id]
        world["found"] = world.get("found") or number == world["secret"]
        return "right" if number == world["secret"] else "higher" if number < world["secret"] else "lower"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"found": float(bool(self.world[rollout_id].get("found")))}


class Store(Tooled):
    """Two calls of different tools are needed, and one alone earns nothing."""

    async def list_tools(self):
        schema = {"type": "object", "properties": {"item": {"type": "string"}, "pieces": {"type": "integer"}}}
        return [ToolDefinition(name, f"{name} pieces.", schema) for name in ("add", "remove")]

    async def run_tool(self, rollout_id, tool_name, item, pieces):
        stock = self.world[rollout_id]["stock"]
        stock[item] = stock.get(item, 0) + (pieces if tool_name == "add" else -pieces)
        return str(stock[item])

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"stock": float(self.world[rollout_id]["stock"] == task["wanted"])}


def stored(at: int, name: str) -> dict[str, Any]:
    return {"more": at + 2, "wanted": {"cups": at + 2, "pens": 5}, "init_rollout_args": {"stock": {"pens": 9}}}


class Report(Tooled):
    """One argument is an object."""

    async def list_tools(self):
        return [ToolDefinition("file", "Files it.", {"type": "object", "properties": {"ticket": {"type": "object"}}})]

    async def run_tool(self, rollout_id, tool_name, ticket):
        self.world[rollout_id]["ticket"] = ticket
        return json.dumps({"filed": {"as": ticket}, "by": None})

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"filed": float(self.world[rollout_id].get("ticket") == task["expected"])}


TOOLED: list[tuple[type[BaseEnv], Any, str, int]] = [
    (TwoLookUps, two_look_ups, "Which door opens to {name}?", 2),
    (Counter, lambda at, name: {"goal": at % 4 + 1, "init_rollout_args": {"at": 0}}, "Bring it to {goal}.", 0),
    (ShopOfOrders, orders, "How many cups did {name} order?", 1),
    (Store, stored, "Add {more} cups and remove 4 pens.", 2),
    (Report, lambda at, name: {"expected": {"who": name, "floor": at}}, "{name} reports a fault.", 1),
]


@pytest.mark.parametrize(("env", "make", "asked", "calls"), TOOLED, ids=lambda value: getattr(value, "__name__", ""))
async def test_solutions_by_tools_are_searched_where_none_is_shown(env, make, asked, calls) -> None:
    given = [
        {"prompt": asked.format(name=name, **row), **row}
        for at, name in enumerate(NAMES[:8])
        for row in [make(at, name)]
    ]
    examples = load_examples(given, env).examples
    async with EnvHost(env) as host:
        player, tools = player_on(host), (await host.toolbox()).tools
        gold = await GoldFinder(player, tools).find(examples)
        demonstrator = Demonstrator(player, gold, tools)
        shown = [await demonstrator.solve(example) for example in examples]
    assert [each.reward if each else None for each in shown] == [1.0] * len(examples)
    assert {each.source for each in shown if each} == {"searched"}
    if calls:
        assert {sum(isinstance(turn, tuple) for turn in each.turns) for each in shown if each} == {calls}


async def test_a_number_that_the_model_cannot_know_is_approached_by_what_the_tool_answers() -> None:
    given = [{"prompt": f"Round {at}.", "init_rollout_args": {"secret": at * 3 + 2}} for at in range(8)]
    examples = load_examples(given, Game).examples
    async with EnvHost(Game) as host:
        player, tools = player_on(host), (await host.toolbox()).tools
        demonstrator = Demonstrator(player, await GoldFinder(player, tools).find(examples), tools)
        shown = [await demonstrator.solve(example) for example in examples]
    tried = [
        [json.loads(turn[0].arguments)["number"] for turn in each.turns if isinstance(turn, tuple)]
        for each in shown
        if each and each.reward == 1.0
    ]
    assert [numbers[-1] for numbers in tried] == [at * 3 + 2 for at in range(8)]
    assert {numbers[0] for numbers in tried} == {15}
    assert max(map(len, tried)) <= 5


@pytest.mark.parametrize("shape", ["generator", "list", "async"])
async def test_a_demonstration_is_taken_in_any_shape_and_sees_what_the_tools_said(shape: str) -> None:
    class Shown(TwoLookUps):
        pass

    def by_turns(self, example):
        badge = yield "badge", {"person": self.name_in(example)}
        door = yield [ToolCall("door", json.dumps({"badge": badge}))]
        yield f"<answer>{door}</answer>"

    def listed(self, example):
        number = re.search(r"D(\d+)", example["task"]["code"])[1]
        badge = f"B{int(number) // 7}"
        return [("badge", {"person": self.name_in(example)}), ("door", {"badge": badge}), f"<answer>D{number}</answer>"]

    async def later(self, example):
        return listed(self, example)

    Shown.name_in = staticmethod(lambda example: example["prompt_messages"][0]["content"].split()[-1].rstrip("?"))
    Shown.demonstrate = {"generator": by_turns, "list": listed, "async": later}[shape]
    given = [
        {"prompt": f"Which door opens to {name}?", **two_look_ups(at + 1, name)} for at, name in enumerate(NAMES[:4])
    ]
    examples = load_examples(given, Shown).examples
    async with EnvHost(Shown) as host:
        player, tools = player_on(host), (await host.toolbox()).tools
        gold = await GoldFinder(player, tools).find(examples)
        shown = [await Demonstrator(player, gold, tools).solve(example) for example in examples]
    assert [(each.source, each.reward) for each in shown if each] == [("demonstrate", 1.0)] * 4


async def test_a_broken_demonstration_is_told_and_costs_nothing_else() -> None:
    class Broken(TwoLookUps):
        def demonstrate(self, example):
            yield 42

    example = load_examples([{"prompt": "Which door opens to Ada?", **two_look_ups(1, "Ada")}], Broken).examples[0]
    async with EnvHost(Broken) as host:
        player, tools = player_on(host), (await host.toolbox()).tools
        demonstrator = Demonstrator(player, await GoldFinder(player, tools).find([example]), tools)
        shown = await demonstrator.solve(example)
    assert "demonstrate returned int as a turn" in demonstrator.error
    assert shown is not None
    assert shown.source == "searched"


def test_tables_are_read_out_of_a_description() -> None:
    assert tables("Ask orders(customer TEXT, item, pieces INT) and f(x).")[0].columns == ["customer", "item", "pieces"]


# Laziness


async def test_an_answer_that_is_right_on_the_rows_played_by_chance_is_not_called_lazy() -> None:
    """The doctor plays few rows; how often the answer is right is counted in all of them."""

    class Numbers(BaseEnv):
        system_prompt = "Answer with the number alone."

        async def compute_reward(self, rollout_id, messages, task, **kwargs):  # type: ignore[no-untyped-def]
            return {"right": float(messages[-1]["content"] == task["ground_truth"])}

    rare = [{"prompt": f"What is number {n}?", "ground_truth": str(n)} for n in range(36)]
    rows = [{"prompt": f"Which one is it, {n}?", "ground_truth": "77"} for n in range(4)]
    diagnosis = await examine(Numbers, rows=[*rows, *rare], pace="quick")
    assert not diagnosis.find("pays-for-laziness")
    often = [{**row, "ground_truth": "77"} for row in rare]
    assert (await examine(Numbers, rows=[*rows, *often[::2], *rare[1::2]], pace="quick")).find("pays-for-laziness")


async def test_what_laziness_earns_is_measured() -> None:
    class Sorting(BaseEnv):
        system_prompt = "Sort the words. Put them in <answer> tags."

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            found = re.search(r"<answer>(.*?)</answer>", extract_completion_text(messages))
            said = found[1].split() if found else []
            same = [a == b for a, b in zip(said, task["in_order"], strict=False)]
            return {"places": sum(same) / 3 if len(said) == 3 else 0.0}

    words = [("b", "a", "c"), ("a", "b", "c"), ("c", "b", "a"), ("a", "c", "b")]
    given = [{"prompt": " ".join(three), "in_order": sorted(three)} for three in words]
    examples = load_examples(given, Sorting).examples
    async with EnvHost(Sorting) as host:
        player = player_on(host)
        gold = await GoldFinder(player).find(examples)
        lazy = earnings(await play_lazily(player, gold, examples, examples), gold, examples)
    assert lazy["repeating the question in the form"] == pytest.approx((1 / 3 + 1 + 1 / 3 + 1 / 3) / 4)
    assert gold.best is not None
    assert gold.best.name == "in_order with spaces, in <answer> tags"
