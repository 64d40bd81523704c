"""The kinds of questions: how one is drawn from the facts, and how it is solved with the tools.

An answer is computed from the facts; a solution reads what the tools show. A question whose solution does not come to
its answer is not asked, so each verifies the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias

from benchmax.envs.generated_tasks import Kind, Steps, single_best
from benchmax.envs.wikipedia.articles.base import GET, SEARCH, Found, shown_article, shown_results
from benchmax.envs.wikipedia.factbook.corpus import World
from benchmax.envs.wikipedia.factbook.profiles import title
from benchmax.envs.wikipedia.tasks.fields import DETAILS, FIELDS, SIMPLE, Field, borders_of, number, read_borders

Facts: TypeAlias = dict[str, Any]
Find: TypeAlias = Callable[[str, int], Sequence[Found]]

BRIDGES = ("highest_point", "internet_code", "calling_code", "capital")
"""Facts that tell which country is meant."""
RANKED = ("airports", "median_age", "life_expectancy", "birth_rate", "urban")
"""Facts that countries are compared by."""
COMPARED = 4
_RESULT = re.compile(r"^\d+\. ([^:\n]+) of ([^:\n]+): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question, its answer, and what in the question a solution starts from."""

    question: str
    field: Field
    answer: str
    facts: Facts


# Drawing


def _about(world: World, field: Field, country: str, whose: str, facts: Facts) -> Drawn | None:
    """A question for a field of a country; None when the country is not there, or has no such fact."""
    answer = field.of(world.countries.get(country, {}))
    if answer is None or answer.lower() in whose.lower():
        return None
    return Drawn(field.ask(whose), field, answer, {**facts, "field": field.name})


def _about_neighbour(world: World, field: Field, country: str, whose: str, facts: Facts) -> Drawn | None:
    nearest = single_best(borders_of(world.countries[country]))
    whose = f"the country that has the longest land border with {whose}"
    return None if nearest is None else _about(world, field, nearest, whose, facts)


About: TypeAlias = Callable[[World, Field, str, str, Facts], Drawn | None]


def _draw_named(world: World, rng: Random, about: About = _about, names: Sequence[str] = SIMPLE) -> Drawn | None:
    """A question that names a country."""
    field, country = FIELDS[rng.choice(names)], rng.choice(list(world.countries))
    return about(world, field, country, country, {"country": country})


def _draw_border(world: World, rng: Random) -> Drawn | None:
    country = rng.choice(list(world.countries))
    lengths = borders_of(world.countries[country])
    if not lengths:
        return None
    other = rng.choice(list(lengths))
    question = f"How many kilometres is the border of {country} with {other}?"
    return Drawn(question, FIELDS["borders"], _kilometres(lengths[other]), {"country": country, "neighbour": other})


def _kilometres(length: float) -> str:
    return f"{length:,.2f}".rstrip("0").rstrip(".")


def _draw_bridge(world: World, rng: Random, about: About = _about) -> Drawn | None:
    """A question that says by another fact which country it means."""
    field, named = _two_fields(rng)
    country = rng.choice(list(world.countries))
    value = _telling(world, named, country)
    if value is None:
        return None
    whose = f"the country whose {named.phrase} is {value}"
    return about(world, field, country, whose, {"bridge": named.name, "value": value})


def _draw_most(world: World, rng: Random) -> Drawn | None:
    ranked, field = FIELDS[rng.choice(RANKED)], FIELDS[rng.choice(SIMPLE)]
    countries = rng.sample(list(world.countries), COMPARED)
    values = {country: ranked.of(world.countries[country]) for country in countries}
    if ranked is field or not all(values.values()):
        return None
    first = single_best({country: number(value) for country, value in values.items() if value})
    if first is None:
        return None
    whose = f"the one with the {ranked.most} among {', '.join(countries)}"
    return _about(world, field, first, whose, {"countries": countries, "ranked": ranked.name})


def _two_fields(rng: Random) -> tuple[Field, Field]:
    field, named = FIELDS[rng.choice(SIMPLE)], FIELDS[rng.choice(BRIDGES)]
    return (field, named) if field is not named else _two_fields(rng)


def _telling(world: World, named: Field, country: str) -> str | None:
    """The value by which a country is meant, if no other has it."""
    value = named.of(world.countries[country])
    owners = [each for each, facts in world.countries.items() if value and named.of(facts) == value]
    return value if len(owners) == 1 else None


# Solving


def _look_up(field: Field, country: str) -> Steps:
    """Search for the fact; read the article when the result does not show it."""
    shown = yield SEARCH, {"q": field.query(country), "limit": 1}
    answer = field.in_text(shown) if field.article(country) in shown else None
    return answer or (yield from _read(field, country))


def _read(field: Field, country: str) -> Steps:
    text = yield GET, {"title": field.article(country)}
    return field.in_text(text)


def _find(named: Field, value: str) -> Steps:
    """The country that a fact is about."""
    shown = yield SEARCH, {"q": f"{named.words} {value}", "limit": 5}
    for _, country, line in _RESULT.findall(shown):
        if named.in_text(f"… {line}") == value:
            return str(country)
    return None


def _solve_border(facts: Mapping[str, Any]) -> Steps:
    text = yield GET, {"title": title("Geography", facts["country"])}
    length = read_borders(text).get(facts["neighbour"])
    return None if length is None else _kilometres(length)


def _solve_way(facts: Mapping[str, Any], neighbour: bool) -> Steps:
    """From the country that is named, or meant by a fact, perhaps to its neighbour, and look the answer up."""
    country = facts["country"] if "country" in facts else (yield from _find(FIELDS[facts["bridge"]], facts["value"]))
    if country and neighbour:
        text = yield GET, {"title": title("Geography", country)}
        country = single_best(read_borders(text))
    return (yield from _look_up(FIELDS[facts["field"]], country)) if country else None


def _solve_most(facts: Mapping[str, Any]) -> Steps:
    values = {}
    for country in facts["countries"]:
        value = yield from _look_up(FIELDS[facts["ranked"]], country)
        values[country] = number(value) if value else 0.0
    first = single_best(values)
    return (yield from _look_up(FIELDS[facts["field"]], first)) if first else None


_ALL = (
    Kind("fact", _draw_named, partial(_solve_way, neighbour=False)),
    Kind("detail", partial(_draw_named, names=DETAILS), lambda facts: _read(FIELDS[facts["field"]], facts["country"])),
    Kind("border", _draw_border, _solve_border),
    Kind("bridge", _draw_bridge, partial(_solve_way, neighbour=False)),
    Kind("neighbour", partial(_draw_named, about=_about_neighbour), partial(_solve_way, neighbour=True)),
    Kind("bridge_neighbour", partial(_draw_bridge, about=_about_neighbour), partial(_solve_way, neighbour=True)),
    Kind("comparison", _draw_most, _solve_most),
)
KINDS = {kind.name: kind for kind in _ALL}


def played(steps: Steps, find: Find, text_of: Callable[[str], str | None]) -> tuple[str | None, int]:
    """What a solution comes to with what finds articles and reads them, and after how many calls."""
    calls = 0
    try:
        name, given = next(steps)
        while True:
            calls += 1
            if name == SEARCH:
                name, given = steps.send(shown_results(find(given["q"], given["limit"]), given["q"]))
            else:
                name, given = steps.send(shown_article(text_of(given["title"]), given["title"]))
    except StopIteration as end:
        return end.value, calls
