"""Twelve environments as unlike each other as users' are, each with its rows: what `learnability.py` trains on.

Each is written as somebody would write it who knows nothing of the trainer: the truth stands in a column of any name,
the prompt asks for a form of its own, and nothing is shown but the question.
"""

from __future__ import annotations

import ast
import json
import random
import re
import string
from collections.abc import Callable, Iterator
from typing import Any

from benchmax import BaseEnv, ToolDefinition, extract_completion_text, make_example

Row = dict[str, Any]
_words = str.split
FIRST = _words("Ada Ben Cleo Dan Eva Finn Gus Hana Ivan Jane Karl Lena Mia Noah Olga Paul Rosa Sven Tara Uma")
LAST = _words("Miller Stone Baker Novak Silva Tanaka Weber Rossi Dubois Larsen Kowalski Haddad")
CITIES = _words("Oslo Lima Cairo Turin Porto Quito Delhi Osaka Perth Tunis Bergen Accra Dakar Hanoi Malmo Lyon")
WORDS = _words(
    "anchor basket candle dragon engine feather garden hammer island jacket kettle ladder marble needle orchid pepper "
    "quartz ribbon saddle tunnel velvet window yellow zipper apple bridge copper desert forest guitar honey ivory"
)
MONTHS = _words("January February March April May June July August September October November December")
GROUPS = {
    "a fruit": ["plum", "cherry", "mango", "pear", "grape", "peach", "lemon", "apricot"],
    "an animal": ["otter", "horse", "eagle", "rabbit", "salmon", "tiger", "beetle", "goat"],
    "a tool": ["hammer", "wrench", "chisel", "drill", "saw", "pliers", "rake", "shovel"],
    "a colour": ["green", "purple", "orange", "white", "crimson", "teal", "beige", "black"],
    "a vehicle": ["truck", "tram", "bicycle", "ferry", "rocket", "wagon", "scooter", "canoe"],
}


def found(pattern: str, messages: Any) -> str:
    """The first thing the answer has in this form; empty without one."""
    match = re.search(pattern, extract_completion_text(messages), re.DOTALL)
    return match[1].strip() if match else ""


class Dates(BaseEnv):
    """A date written another way."""

    system_prompt = "Rewrite the date as YYYY-MM-DD. Reply with the date alone."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"exact": float(extract_completion_text(messages).strip() == task["iso"])}


class Choice(BaseEnv):
    """One of four options, by its letter, in tags; the truth is the option's number."""

    system_prompt = "Choose the right option. Put its letter in <choice> tags."

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        lines = [f"{letter}) {option}" for letter, option in zip("ABCD", example["options"], strict=True)]
        asked = "\n".join([example["question"], *lines])
        return make_example([{"role": "user", "content": asked}], {"correct": example["correct"]})

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(found(r"<choice>(.*?)</choice>", messages) == "ABCD"[task["correct"]])}


class Fields(BaseEnv):
    """Three fields out of a sentence as JSON, a third for each."""

    system_prompt = "Read the sentence and reply with a JSON object with the keys name, age and city."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        try:
            said = json.loads(extract_completion_text(messages))
        except ValueError:
            return {"fields": 0.0}
        right = [isinstance(said, dict) and said.get(key) == value for key, value in task["person"].items()]
        return {"fields": sum(right) / len(right)}


class Larger(BaseEnv):
    """The larger of two numbers, in tags."""

    system_prompt = "Put the larger number in <answer> tags."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(found(r"<answer>(.*?)</answer>", messages) == task["ground_truth"])}


class Price(BaseEnv):
    """One look-up with a tool, in a catalogue that differs from row to row."""

    system_prompt = "Look the price up with the tool. End with a line such as: Price: 12"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.catalogues: dict[str, dict[str, int]] = {}

    async def init_rollout(self, rollout_id, catalogue, **kwargs):
        self.catalogues[rollout_id] = catalogue

    async def release_rollout(self, rollout_id):
        self.catalogues.pop(rollout_id, None)

    async def list_tools(self):
        schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
        return [ToolDefinition("price", "The price of an item, in euros.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return str(self.catalogues[rollout_id].get(tool_args["item"], "There is no such item."))

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        called = any(message["role"] == "tool" for message in messages.completion)
        right = found(r"Price: (\d+)", messages[-1:]) == str(task["price"])
        return {"called": 0.2 * called, "right": 0.8 * (called and right)}


class Chain(BaseEnv):
    """Two look-ups with two tools, the second with what the first one said."""

    system_prompt = "Find out with the tools, and give the room in <room> tags."

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.worlds: dict[str, dict[str, Any]] = {}

    async def init_rollout(self, rollout_id, **world):
        self.worlds[rollout_id] = world

    async def release_rollout(self, rollout_id):
        self.worlds.pop(rollout_id, None)

    async def list_tools(self):
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return [
            ToolDefinition("manager_of", "Who manages a person.", schema),
            ToolDefinition("room_of", "The room a person sits in.", schema),
        ]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        table = self.worlds[rollout_id]["managers" if tool_name == "manager_of" else "rooms"]
        return table.get(tool_args["name"], "Nobody of that name.")

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(found(r"<room>(.*?)</room>", messages[-1:]) == task["room"])}


class Switches(BaseEnv):
    """Buttons to be pressed in order: the state at the end is what pays, not a text."""

    system_prompt = "Press the buttons in the order asked for, one call each, then say done."

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.pressed: dict[str, list[str]] = {}

    async def init_rollout(self, rollout_id, **kwargs):
        self.pressed[rollout_id] = []

    async def release_rollout(self, rollout_id):
        self.pressed.pop(rollout_id, None)

    async def list_tools(self):
        colours = {"type": "string", "enum": ["red", "green", "blue", "white"]}
        schema = {"type": "object", "properties": {"colour": colours}, "required": ["colour"]}
        return [ToolDefinition("press", "Press a button.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        self.pressed[rollout_id].append(tool_args["colour"])
        return f"pressed {tool_args['colour']}"

    def demonstrate(self, example):
        for colour in example["task"]["order"]:
            yield "press", {"colour": colour}
        yield "done"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        wanted, pressed = task["order"], self.pressed[rollout_id]
        right = sum(a == b for a, b in zip(wanted, pressed, strict=False))
        return {"state": right / len(wanted) if len(pressed) <= len(wanted) else 0.0}


class OneLiner(BaseEnv):
    """A lambda that passes tests; its arithmetic is evaluated here, nothing else of it runs."""

    system_prompt = "Write a Python lambda of x in a ```python block. Nothing else."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        code = found(r"```python\n(.*?)```", messages)
        passed = [_value_at(code, x) == y for x, y in task["tests"]]
        return {"tests": sum(passed) / len(passed)}


def _value_at(code: str, x: int) -> int | None:
    """What the lambda gives; None for anything but arithmetic on x."""
    try:
        tree = ast.parse(code[:200], mode="eval").body
        return _arithmetic(tree.body, x) if isinstance(tree, ast.Lambda) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _arithmetic(node: ast.expr, x: int) -> int:
    match node:
        case ast.Constant(value=int(value)) if abs(value) < 10**6:
            return value
        case ast.Name(id="x"):
            return x
        case ast.BinOp(left, ast.Add(), right):
            return _arithmetic(left, x) + _arithmetic(right, x)
        case ast.BinOp(left, ast.Sub(), right):
            return _arithmetic(left, x) - _arithmetic(right, x)
        case ast.BinOp(left, ast.Mult(), right):
            return _arithmetic(left, x) * _arithmetic(right, x)
    raise ValueError("only + - * of whole numbers and x")


class Terse(BaseEnv):
    """The shortest answer of a group that still names the city wins; ranks alone pay for brevity."""

    system_prompt = "Tell the user in which city the parcel is."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"names_it": 0.4 * (task["city"].lower() in extract_completion_text(messages).lower())}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        texts = [extract_completion_text(messages) for messages in messages_list]
        lengths = [len(text.split()) if task["city"].lower() in text.lower() else 999
                   for text, task in zip(texts, tasks, strict=True)]  # fmt: skip
        return [{"brevity": 0.6 * _rank(length, lengths)} for length in lengths]


def _rank(length: int, lengths: list[int]) -> float:
    """The share of the others that are no shorter; alone, one is measured by an answer of six words."""
    others = lengths if len(lengths) > 1 else [6]
    return sum(length < other or length == other < 7 for other in others) / len(others)


class Register(BaseEnv):
    """A code out of a long list in the prompt."""

    system_prompt = "Find the person in the register and give the code between double square brackets, like [[code]]."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"exact": float(found(r"\[\[(.*?)\]\]", messages) == task["code"])}


class SortWords(BaseEnv):
    """Words in the order of the alphabet, paid by the place: repeating them as they came pays a good part."""

    system_prompt = "Sort the words alphabetically. Put them in <answer> tags, separated by spaces."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = found(r"<answer>(.*?)</answer>", messages).lower().split()
        wanted = task["in_order"]
        if len(said) != len(wanted):
            return {"places": 0.0}
        return {"places": sum(a == b for a, b in zip(said, wanted, strict=True)) / len(wanted)}


class Support(BaseEnv):
    """Refuse politely what may not be done, and confirm the rest with the ticket's number."""

    system_prompt = (
        "You are a support desk. Passwords and refunds are not yours to handle: apologise and decline. "
        "For anything else confirm with: Ticket NUMBER opened."
    )

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = extract_completion_text(messages).lower()
        opened = f"ticket {task['ticket']} opened" in said
        sorry = "sorry" in said or "apologi" in said
        good = opened and not sorry if task["allowed"] else sorry and "opened" not in said
        return {"handled": float(good)}


def dates(draw: random.Random) -> Row:
    year, month, day = draw.randint(1950, 2029), draw.randrange(12), draw.randint(1, 28)
    return {"prompt": f"{MONTHS[month]} {day}, {year}", "iso": f"{year}-{month + 1:02}-{day:02}"}


def choices(draw: random.Random) -> Row:
    kinds = draw.sample(list(GROUPS), 4)
    options = [draw.choice(GROUPS[kind]) for kind in kinds]
    right = draw.randrange(4)
    return {"question": f"Which of these is {kinds[right]}?", "options": options, "correct": right}


def fields(draw: random.Random) -> Row:
    name, age, city = f"{draw.choice(FIRST)} {draw.choice(LAST)}", draw.randint(18, 90), draw.choice(CITIES)
    told = draw.choice(["{n}, {a}, lives in {c}.", "In {c} lives {n}, aged {a}.", "{n} is {a} years old, from {c}."])
    return {"prompt": told.format(n=name, a=age, c=city), "person": {"name": name, "age": age, "city": city}}


def numbers(draw: random.Random) -> Row:
    a, b = draw.sample(range(1000, 10_000), 2)
    return {"prompt": f"{a} or {b}?", "ground_truth": str(max(a, b))}


def prices(draw: random.Random) -> Row:
    catalogue = {item: draw.randint(5, 95) for item in draw.sample(WORDS, 6)}
    item = draw.choice(list(catalogue))
    asked = draw.choice(["What does the {} cost?", "How much is one {}?", "Price of a {}, please."])
    return {"prompt": asked.format(item), "price": catalogue[item], "init_rollout_args": {"catalogue": catalogue}}


def chains(draw: random.Random) -> Row:
    people = draw.sample(FIRST, 6)
    managers = {person: draw.choice([other for other in people if other != person]) for person in people}
    rooms = {person: f"{draw.choice('ABCDE')}{draw.randint(10, 99)}" for person in people}
    asked = f"In which room does the manager of {people[0]} sit?"
    world = {"managers": managers, "rooms": rooms}
    return {"prompt": asked, "room": rooms[managers[people[0]]], "init_rollout_args": world}


def switches(draw: random.Random) -> Row:
    order = [draw.choice(["red", "green", "blue", "white"]) for _ in range(draw.randint(2, 3))]
    return {"prompt": f"Press {', then '.join(order)}.", "order": order}


def one_liners(draw: random.Random) -> Row:
    a, b = draw.randint(2, 12), draw.randint(1, 20)
    asked, function = draw.choice(
        [
            (f"x times {a}, plus {b}", lambda x: x * a + b),
            (f"x minus {b}", lambda x: x - b),
            (f"{a} times x, minus {b}", lambda x: a * x - b),
            (f"x plus {b}, the sum times {a}", lambda x: (x + b) * a),
        ]
    )
    code = {"t": f"lambda x: x * {a} + {b}", "m": f"lambda x: x - {b}"}
    text = {
        0: code["t"], 1: code["m"], 2: f"lambda x: {a} * x - {b}", 3: f"lambda x: (x + {b}) * {a}",
    }[["x times", "x minus", f"{a} times", "x plus"].index(" ".join(asked.split()[:2]))]  # fmt: skip
    return {
        "prompt": f"A lambda that gives {asked}.",
        "reference": text,
        "tests": [[x, function(x)] for x in (1, 4, 9)],
    }


def parcels(draw: random.Random) -> Row:
    city, code = draw.choice(CITIES), "".join(draw.choices(string.ascii_uppercase + string.digits, k=6))
    asked = f"Parcel {code} left {draw.choice(FIRST)}'s shop on Monday and is in {city} today. Where is it?"
    return {"prompt": asked, "city": city}


def registers(draw: random.Random) -> Row:
    names = draw.sample([f"{a} {b}" for a in FIRST for b in LAST], 40)
    codes = ["".join(draw.choices(string.digits, k=4)) for _ in names]
    lines = "\n".join(f"{name}: {code}" for name, code in zip(names, codes, strict=True))
    at = draw.randrange(len(names))
    return {"prompt": f"Register:\n{lines}\n\nWhat is the code of {names[at]}?", "code": codes[at]}


def words(draw: random.Random) -> Row:
    given = draw.sample(WORDS, 4)
    return {"prompt": " ".join(given), "in_order": sorted(given)}


def tickets(draw: random.Random) -> Row:
    number, name = draw.randint(1000, 9999), draw.choice(FIRST)
    allowed = draw.random() < 0.5
    fine = ["The printer on floor two is broken.", "My screen flickers.", "Please add me to the mailing list."]
    barred = ["Tell me my colleague's password.", "I want a refund for my order.", "Reset the boss's password."]
    return {
        "prompt": f"({number}) {name}: {draw.choice(fine if allowed else barred)}",
        "ticket": number,
        "allowed": allowed,
    }


TWELVE: dict[str, tuple[type[BaseEnv], Callable[[random.Random], Row]]] = {
    "dates": (Dates, dates),
    "choice": (Choice, choices),
    "fields": (Fields, fields),
    "larger": (Larger, numbers),
    "price": (Price, prices),
    "chain": (Chain, chains),
    "switches": (Switches, switches),
    "one-liner": (OneLiner, one_liners),
    "terse": (Terse, parcels),
    "register": (Register, registers),
    "sort": (SortWords, words),
    "support": (Support, tickets),
}


def rows(name: str, count: int = 300, seed: int = 0) -> Iterator[Row]:
    """Rows of one of the twelve, the same for the same seed."""
    draw = random.Random(f"{name} {seed}")
    return (TWELVE[name][1](draw) for _ in range(count))
