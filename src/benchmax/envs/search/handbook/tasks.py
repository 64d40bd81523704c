"""Questions about the handbook: their kinds, how each is solved with the search, and the rows of each level.

An answer comes from the records; a solution reads the texts that the search shows.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from benchmax.envs.generated_tasks import draw_different
from benchmax.envs.search.handbook.company import Record, company


class Asked(NamedTuple):
    """A label of a record's kind: how questions name it, and what a search for it is called."""

    kind: str
    label: str
    phrase: str


_LABELS = {
    "person": ("Extension", "Office", "Joined"), "office": ("Postcode", "Manager", "Opened"),
    "project": ("Budget code", "Lead", "Office"), "room": ("Door code", "Keeper", "Office"),
}  # fmt: skip
_YEARS = {"Joined": "joining year", "Opened": "opening year"}
FACTS = tuple(
    Asked(kind, label, f"{_YEARS.get(label, label.lower())} of {{}}")
    for kind, labels in _LABELS.items()
    for label in labels
)
LINKS = {"Lead": "person", "Keeper": "person", "Manager": "person", "Office": "office"}
"""Labels whose values are other records, and their kind."""
KINDS = {"lookup": 0, "two_steps": 1, "three_steps": 2}
"""How many links lead from the record that a question names to the one that holds the answer."""
NAME = "handbook"
ROWS = 640
_TRIES = 5_000
"""Draws that bring nothing new: the level has no more questions."""
DEFAULT_LEVEL = "lookup"
LEVELS = {"lookup": ("lookup",), "steps": ("two_steps",), "chains": ("two_steps", "three_steps")}
"""From one search to three, each of which needs what the last one found."""


class Drawn(NamedTuple):
    question: str
    answer: str
    start: str
    labels: tuple[str, ...]
    """The links, then the label that is asked for."""
    records: tuple[Record, ...]


def draw(rng: Random, links: int) -> Drawn | None:
    """A question; None when the way that was drawn leads in a circle."""
    record = rng.choice(list(company().values()))
    start, path, labels, phrase = record, [record], list[str](), record.name
    for _ in range(links):
        asked = rng.choice([each for each in FACTS if each.kind == record.kind and each.label in LINKS])
        record = company()[record.values[asked.label]]
        labels.append(asked.label)
        path.append(record)
        phrase = "the " + asked.phrase.format(phrase)
    last = rng.choice([each for each in FACTS if each.kind == record.kind])
    answer = record.values[last.label]
    if len({each.name for each in path}) < len(path) or answer == start.name:
        return None
    question = f"What is the {last.phrase.format(phrase)}?"
    return Drawn(question, answer, start.name, (*labels, last.label), tuple(path))


def searches(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments of the searches of a solution."""
    name, found = str(facts["start"]), list[dict[str, Any]]()
    for label in facts["labels"]:
        found.append(_search(name, label))
        name = company()[name].values[label]
    return found


def _search(name: str, label: str) -> dict[str, Any]:
    return {"query": f"{name} {label.lower()}", "limit": 1}


def solve(facts: Mapping[str, Any]) -> Generator[Any, str, None]:
    """Follow the labels from record to record, answer with the last one's value, and cite each."""
    name, sources = str(facts["start"]), list[str]()
    for label in facts["labels"]:
        shown = yield "search", _search(name, label)
        found = re.search(rf"\[Source: (\w+)\] {re.escape(name)}, .*?\b{re.escape(label)}: ([^.]+)\.", shown)
        if found is None:
            yield "<answer></answer>"
            return
        sources.append(found[1])
        name = found[2]
    yield f"<answer>{name}</answer> " + " ".join(f"[Source: {source}]" for source in sources)


# Rows


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """The first `rows` rows of a level, in the columns `question`, `answer` and `reference_chunks`."""
    rng = Random(f"benchmax handbook {level} {seed}")

    def question(kinds: Sequence[str]) -> Drawn | None:
        return draw(rng, KINDS[rng.choice(kinds)])

    wanted = ROWS if rows is None else rows
    drawn = draw_different([LEVELS[level]], question, lambda each: each.question, wanted, _TRIES)
    return [_row(each, level) for each in drawn]


def _row(drawn: Drawn, level: str) -> dict[str, Any]:
    chunks = [{"id": each.id, "metadata": {"title": each.name}, "content": each.text} for each in drawn.records]
    return {
        "question": drawn.question,
        "answer": drawn.answer,
        "reference_chunks": chunks,
        "corpus": NAME,
        "level": level,
        "facts": {"start": drawn.start, "labels": list(drawn.labels)},
    }
