"""The values of a task that may be its answer, each as the texts it could be written as.

Nothing says which column holds the truth, nor how to write it: a list may be the answer or its alternatives, a number
may stand for an option. Every reading has a label with the same meaning on every row, so that the one that earns on a
few rows can be used on all.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmax.doctor.gold import table_formats
from benchmax.doctor.gold.table_formats import plain
from benchmax.doctor.gold.templates import filled, filled_in_order
from benchmax.doctor.gold.value_formats import Notation, spellings
from benchmax.envs.base_env import PROMPT_COLUMNS
from benchmax.envs.loading import json_or_text
from benchmax.envs.reward_helpers import content_text, last_user_text
from benchmax.envs.types import Example

TRUTH_KEYS = ("ground_truth", "answer", "expected_answer", "expected", "target", "solution", "label", "gold")
_LIKELY = re.compile(r"truth|answer|expect|target|solution|label|gold|correct|reference|result|output|respon|complet")
_OPTION = re.compile(r"^\s*\(?([A-Za-z]|\d{1,2})[).:]\s+(.+?)\s*$", re.MULTILINE)
_FINAL = re.compile(r"####\s*(.+)\s*$")
LONGEST = 8_000
"""Characters of a value; a longer one is a document, not an answer."""
EDGE = 2_000
"""Characters at either end of a message that may say how to answer."""
MOST_ITEMS = 50
FIRST_READINGS = 4
"""Readings of one column that come before the further ones of all others."""
DEPTH = 3
"""How deep nested tables are read."""
NEWLINE = "\n"
SHORT_WORDS = 3
"""Words of an answer that is also tried in other cases: yes, Yes, YES."""


class Truth(NamedTuple):
    """One reading of a task's answer."""

    label: str
    text: str
    whole: bool = False
    """The answer as the prompt shows it, to be put into no other form."""


def truth_text(example: Example) -> str | None:
    """The example's right answer, under any of its usual names, as a text; None when there is none."""
    task = example.get("task") or {}
    truth = next((task[key] for key in TRUTH_KEYS if not _is_empty(task.get(key))), None)
    if isinstance(truth, list) and isinstance(truth[0], str | int | float):
        truth = truth[0]
    if truth is None or isinstance(truth, str):
        return truth
    return _json(truth)


def question(example: Example) -> str:
    """The last user turn."""
    return last_user_text(example["prompt_messages"])


def prompt_text(example: Example, system_prompt: str) -> str:
    """Everything the model reads before it answers."""
    return "\n".join([system_prompt, *(content_text(m.get("content")) for m in example["prompt_messages"])])


def options(example: Example, answer: str = "") -> list[str]:
    """The options a task offers: a list of texts among its columns, or the lettered lines of its prompt.

    `answer` is the label of the right answer: where that is a list of texts to find in the prompt, it offers nothing.
    """
    asked = question(example)
    for name, value in (example.get("task") or {}).items():
        texts = value if isinstance(value, list) and len(value) > 1 and name not in answer.split() else [None]
        if all(isinstance(item, str) and item in asked for item in texts):
            return list(texts)
    lines = [match[2] for match in _OPTION.finditer(asked)]
    return lines if len(lines) > 1 else []


def instructions(example: Example, system_prompt: str) -> str:
    """The same without the middle of a long document: how to answer is said before or after it."""
    texts = (content_text(message.get("content")) for message in example["prompt_messages"])
    return "\n".join([system_prompt, *(f"{t[:EDGE]}\n{t[-EDGE:]}" if len(t) > 2 * EDGE else t for t in texts)])


def truths(example: Example, system_prompt: str = "") -> list[Truth]:
    """Every reading of every column, the likely ones first; the prompt may name columns that belong together."""
    asked = instructions(example, system_prompt)
    by_column = [
        [*_readings(name, value, example), *_spelled(name, value, asked)] for name, value in likely_columns(example)
    ]
    # The first reading of every column comes before the thirtieth of one: not all of them can be tried.
    early = [truth for readings in by_column for truth in readings[:FIRST_READINGS]]
    found = [*early, *(truth for readings in by_column for truth in readings[FIRST_READINGS:])]
    return [
        truth for truth in (*found, *_together(example, asked)) if truth.text.strip() and len(truth.text) <= LONGEST
    ]


def likely_columns(example: Example) -> list[tuple[str, Any]]:
    """The columns and what is in them, those named like an answer first."""
    return sorted(columns(example), key=lambda column: _likelihood(column[0]))


def short_values(example: Example) -> list[str]:
    """The texts and numbers of the task that are short enough to be shown as an example."""
    found = (value for _, value in likely_columns(example))
    return [str(value) for value in found if is_short(value)]


def is_likely(name: str) -> bool:
    """Whether a column is named like one that holds the answer."""
    return _LIKELY.search(name.rpartition(".")[2].lower()) is not None


def is_short(value: Any) -> bool:
    """Whether a value is a number, or a text of a few words."""
    return type(value) in (int, float) or (isinstance(value, str) and 0 < len(value.split()) <= SHORT_WORDS)


def _likelihood(name: str) -> int:
    leaf = name.rpartition(".")[2].lower()
    if leaf in TRUTH_KEYS:
        return TRUTH_KEYS.index(leaf)
    return len(TRUTH_KEYS) + (not is_likely(name)) + 2 * name.startswith("init_rollout_args")


def columns(example: Example) -> Iterator[tuple[str, Any]]:
    """The task's columns, and the values inside those that are tables; prompts are not answers."""
    task = {"init_rollout_args": example.get("init_rollout_args"), **(example.get("task") or {})}
    for name, value in task.items():
        if name in PROMPT_COLUMNS or _is_empty(value):
            continue
        yield from _inside(name, _unpacked(value), 0)


def _inside(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """A value, and the values inside it."""
    if isinstance(value, Mapping) and depth < DEPTH:
        for key, inner in list(value.items())[:MOST_ITEMS]:
            if not _is_empty(inner):
                yield from _inside(f"{name}.{key}", _unpacked(inner), depth + 1)
    if name != "init_rollout_args":
        yield name, value


def _unpacked(value: Any) -> Any:
    """The value; a table or list that was saved as JSON text is parsed."""
    packed = isinstance(value, str) and len(value) <= LONGEST and value.strip()[:1] in ("{", "[")
    return json_or_text(value) if packed else value


def _readings(name: str, value: Any, example: Example) -> Iterator[Truth]:
    match value:
        case bool():
            yield Truth(name, str(value))
            yield Truth(f"{name} in small letters", str(value).lower())
            for yes, no in (("yes", "no"), ("Yes", "No"), ("YES", "NO"), ("TRUE", "FALSE")):
                yield Truth(f"{name} as {yes} or {no}", yes if value else no)
        case int() | float():
            yield Truth(name, str(value))
            if isinstance(value, float) and value.is_integer():
                yield Truth(f"{name} as a whole number", str(int(value)))
            yield from _as_option(name, value, example)
        case str():
            yield from _text_readings(name, value, example)
        case list() | tuple():
            yield from _list_readings(name, value)
            yield from _options_of(name, value, example)
        case Mapping():
            yield Truth(f"{name} as JSON", _json(value))
            yield from _noted(name, table_formats.of_table(value))
            yield from _noted(name, table_formats.of_pairs(value))
        case _:
            yield Truth(name, str(value))


def _text_readings(name: str, value: str, example: Example) -> Iterator[Truth]:
    yield Truth(name, value)
    if final := _FINAL.search(value):
        yield Truth(f"{name} after ####", final[1])
    yield from _letter_of(name, value, example)
    if len(value.split()) <= SHORT_WORDS:
        yield Truth(f"{name} in capitals", value.upper())
        yield Truth(f"{name} in small letters", value.lower())
        yield Truth(f"{name} with a capital", value[:1].upper() + value[1:])


_JOINTS = {
    "commas": ", ", "spaces": " ", "lines": "\n", "bare commas": ",", "arrows": " -> ", "semicolons": "; ",
    "bars": " | ", "angles": " > ", "hyphens": "-", "and": " and ",
}  # fmt: skip


def _list_readings(name: str, value: Sequence[Any]) -> Iterator[Truth]:
    items = list(value)[:MOST_ITEMS]
    single = all(isinstance(item, str | int | float) for item in items)
    if single:
        yield Truth(f"the first of {name}", plain(items[0]))
        yield from _joined(name, items)
    yield Truth(f"{name} as JSON", _json(items))
    yield from _noted(name, table_formats.of_list(items))
    if single:
        yield from _joined(f"{name} backwards,", items[::-1])
        yield from _joined(f"{name} in order,", _sorted(items))


def _options_of(name: str, value: Sequence[Any], example: Example) -> Iterator[Truth]:
    """Several options: a switch for each of them, their places, or their texts."""
    offered = options(example)[: len(string.ascii_uppercase)]
    if len(value) == len(offered) and all(isinstance(item, bool) for item in value):
        places = [at for at, switched in enumerate(value) if switched]
    elif all(type(item) is int and 0 <= item < len(offered) for item in value):
        places = list(value)
    else:
        places = [offered.index(item) for item in value if item in offered]
    if places and offered:
        yield from _joined(f"the letters of {name}", [string.ascii_uppercase[at] for at in places])
        yield from _joined(f"each option of {name}", [offered[at] for at in places])


def _joined(name: str, items: Sequence[Any]) -> Iterator[Truth]:
    texts = [plain(item) for item in items]
    yield from (Truth(f"{name} with {how}", joint.join(texts)) for how, joint in _JOINTS.items())


def _sorted(items: list[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return items


def _as_option(name: str, value: float, example: Example) -> Iterator[Truth]:
    """A number that may be the index of an option."""
    if not isinstance(value, int) or not 0 <= value < len(string.ascii_uppercase):
        return
    yield Truth(f"{name} as a letter", string.ascii_uppercase[value])
    yield Truth(f"{name} counted from one", str(value + 1))
    offered = options(example)
    if value < len(offered):
        yield Truth(f"the option of {name}", offered[value])


def _letter_of(name: str, value: str, example: Example) -> Iterator[Truth]:
    """A text that is one of the lettered options."""
    lettered = {match[2].strip().lower(): match[1] for match in _OPTION.finditer(question(example))}
    if letter := lettered.get(value.strip().lower()):
        yield Truth(f"the letter of {name}", letter)
    spelled = {mark: text for text, mark in lettered.items()}
    if text := spelled.get(value.strip()):
        yield Truth(f"the option of {name}", text)


def _spelled(name: str, value: Any, asked: str) -> Iterator[Truth]:
    yield from (Truth(f"{name} as {how}", text) for how, text in spellings(value, asked))
    if isinstance(value, Mapping):
        yield from _noted(name, table_formats.of_table_in(asked, value))


def _noted(name: str, found: Iterator[Notation]) -> Iterator[Truth]:
    return (Truth(f"{name} {how}", text, how == table_formats.AS_XML) for how, text in found)


def _together(example: Example, asked: str) -> Iterator[Truth]:
    """Several columns as one answer: those the prompt names, and all of them."""
    task = {name: value for name, value in (example.get("task") or {}).items() if name not in PROMPT_COLUMNS}
    task.pop("init_rollout_args", None)
    named = {name: value for name, value in task.items() if re.search(rf"\b{re.escape(name)}\b", asked)}
    for label, columns in (("the columns the prompt names", named), ("all columns", task)):
        if len(columns) > 1:
            yield Truth(f"{label} as JSON", _json(columns))
            yield from _noted(label, table_formats.of_table_in(asked, columns))
            yield from _noted(label, table_formats.of_table(columns))
    yield from (*_headed(task), *_continued(example))
    for label, columns in (("the columns", task), *((name, value) for name, value in task.items())):
        if isinstance(columns := _unpacked(columns), Mapping):
            whole = {key: plain(value) for key, value in columns.items()}
            # A list may hold alternatives, of which one is the answer.
            first = {
                key: plain(value[0] if isinstance(value, list) and value else value) for key, value in columns.items()
            }
            texts = (*filled(asked, whole), *(filled(asked, first) if first != whole else ()))
            texts = (*texts, *filled_in_order(asked, list(whole.values())))
            yield from (Truth(f"{label} in the prompt's template {at}", text, True) for at, text in enumerate(texts, 1))


def _headed(task: Mapping[str, Any]) -> Iterator[Truth]:
    """Rows of cells in one column, under a header in another."""
    values = {name: _unpacked(value) for name, value in task.items()}
    for name, grid in values.items():
        for other, header in values.items() if table_formats.is_grid(grid) else ():
            if isinstance(header, list) and len(header) == len(grid[0]) and all(isinstance(h, str) for h in header):
                yield from _noted(f"{name} under {other}", table_formats.of_cells(header, grid))


def _continued(example: Example) -> Iterator[Truth]:
    """A text that continues another, as the body of a function continues its head."""
    task = {name: value for name, value in (example.get("task") or {}).items() if isinstance(value, str)}
    for name, value in task.items():
        if value[:1].isspace() and value.strip() and name not in PROMPT_COLUMNS:
            for other, begun in task.items():
                if other != name and begun.strip():
                    yield Truth(f"{other} and {name}", f"{begun}{'' if begun.endswith(NEWLINE) else NEWLINE}{value}")


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
