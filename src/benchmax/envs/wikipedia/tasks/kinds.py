"""The kinds of questions: how one is drawn from the facts, and how it is solved with the tools.

An answer is computed from the facts; a solution reads what the tools show. A question whose solution does not come to
its answer is not asked, so each verifies the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from benchmax.envs.generated import Steps, only
from benchmax.envs.wikipedia.articles.base import GET, SEARCH, Found, shown_article, shown_results
from benchmax.envs.wikipedia.factbook.profiles import title
from benchmax.envs.wikipedia.factbook.world import World
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


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    draw: Callable[[World, Random], Drawn | None]
    """A question; None when what was drawn has no single answer."""
    solve: Callable[[Mapping[str, Any]], Steps]


# Drawing


def _draw_fact(world: World, rng: Random, names: tuple[str, ...] = SIMPLE) -> Drawn | None:
    field, country = FIELDS[rng.choice(names)], rng.choice(list(world.countries))
    return _drawn(world, field, country, country, {"country": country})


def _draw_detail(world: World, rng: Random) -> Drawn | None:
    return _draw_fact(world, rng, DETAILS)


def _draw_border(world: World, rng: Random) -> Drawn | None:
    country = rng.choice(list(world.countries))
    lengths = borders_of(world.countries[country])
    if not lengths:
        return None
    other = rng.choice(list(lengths))
    question = f"How many kilometres is the border of {country} with {other}?"
    answer = f"{lengths[other]:,.2f}".rstrip("0").rstrip(".")
    return Drawn(question, FIELDS["borders"], answer, {"country": country, "neighbour": other})


def _draw_bridge(world: World, rng: Random) -> Drawn | None:
    field, named = _two_fields(rng)
    country = rng.choice(list(world.countries))
    value = _telling(world, named, country)
    if value is None:
        return None
    return _drawn(world, field, country, _whose(named, value), {"bridge": named.name, "value": value})


def _draw_neighbour(world: World, rng: Random) -> Drawn | None:
    field, country = FIELDS[rng.choice(SIMPLE)], rng.choice(list(world.countries))
    nearest = only(borders_of(world.countries[country]))
    whose = f"the country that has the longest land border with {country}"
    return None if nearest is None else _drawn(world, field, nearest, whose, {"country": country})


def _draw_far(world: World, rng: Random) -> Drawn | None:
    field, named = _two_fields(rng)
    country = rng.choice(list(world.countries))
    value, nearest = _telling(world, named, country), only(borders_of(world.countries[country]))
    if value is None or nearest is None:
        return None
    whose = f"the country that has the longest land border with {_whose(named, value)}"
    return _drawn(world, field, nearest, whose, {"bridge": named.name, "value": value})


def _draw_most(world: World, rng: Random) -> Drawn | None:
    ranked, field = FIELDS[rng.choice(RANKED)], FIELDS[rng.choice(SIMPLE)]
    countries = rng.sample(list(world.countries), COMPARED)
    values = {country: ranked.of(world.countries[country]) for country in countries}
    if ranked is field or not all(values.values()):
        return None
    first = only({country: number(value) for country, value in values.items() if value})
    if first is None:
        return None
    whose = f"the one with the {ranked.most} among {', '.join(countries)}"
    return _drawn(world, field, first, whose, {"countries": countries, "ranked": ranked.name})


def _drawn(world: World, field: Field, country: str, whose: str, facts: Facts) -> Drawn | None:
    """A question for a field of a country; None when the country is not there, or has no such fact."""
    answer = field.of(world.countries.get(country, {}))
    if answer is None or answer.lower() in whose.lower():
        return None
    return Drawn(field.ask(whose), field, answer, {**facts, "field": field.name})


def _two_fields(rng: Random) -> tuple[Field, Field]:
    field, named = FIELDS[rng.choice(SIMPLE)], FIELDS[rng.choice(BRIDGES)]
    return (field, named) if field is not named else _two_fields(rng)


def _telling(world: World, named: Field, country: str) -> str | None:
    """The value by which a country is meant, if no other has it."""
    value = named.of(world.countries[country])
    owners = [each for each, facts in world.countries.items() if value and named.of(facts) == value]
    return value if len(owners) == 1 else None


def _whose(named: Field, value: str) -> str:
    return f"the country whose {named.phrase} is {value}"


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


def _nearest(country: str) -> Steps:
    text = yield GET, {"title": title("Geography", country)}
    return only(read_borders(text))


def _solve_fact(facts: Mapping[str, Any]) -> Steps:
    return (yield from _look_up(FIELDS[facts["field"]], facts["country"]))


def _solve_detail(facts: Mapping[str, Any]) -> Steps:
    return (yield from _read(FIELDS[facts["field"]], facts["country"]))


def _solve_border(facts: Mapping[str, Any]) -> Steps:
    text = yield GET, {"title": title("Geography", facts["country"])}
    length = read_borders(text).get(facts["neighbour"])
    return None if length is None else f"{length:,.2f}".rstrip("0").rstrip(".")


def _solve_bridge(facts: Mapping[str, Any]) -> Steps:
    country = yield from _find(FIELDS[facts["bridge"]], facts["value"])
    return (yield from _look_up(FIELDS[facts["field"]], country)) if country else None


def _solve_neighbour(facts: Mapping[str, Any]) -> Steps:
    country = yield from _nearest(facts["country"])
    return (yield from _look_up(FIELDS[facts["field"]], country)) if country else None


def _solve_far(facts: Mapping[str, Any]) -> Steps:
    country = yield from _find(FIELDS[facts["bridge"]], facts["value"])
    return (yield from _solve_neighbour({**facts, "country": country})) if country else None


def _solve_most(facts: Mapping[str, Any]) -> Steps:
    values = {}
    for country in facts["countries"]:
        value = yield from _look_up(FIELDS[facts["ranked"]], country)
        values[country] = number(value) if value else 0.0
    first = only(values)
    return (yield from _look_up(FIELDS[facts["field"]], first)) if first else None


_ALL = (
    Kind("fact", _draw_fact, _solve_fact),
    Kind("detail", _draw_detail, _solve_detail),
    Kind("border", _draw_border, _solve_border),
    Kind("bridge", _draw_bridge, _solve_bridge),
    Kind("neighbour", _draw_neighbour, _solve_neighbour),
    Kind("bridge_neighbour", _draw_far, _solve_far),
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
