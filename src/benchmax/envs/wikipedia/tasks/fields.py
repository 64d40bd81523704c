"""The facts that questions ask for: where each stands, how it is asked for, and what of it is the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmax.envs.wikipedia.factbook.corpus import Facts
from benchmax.envs.wikipedia.factbook.profiles import title

_NUMBER = r"([\d,]*\d(?:\.\d+)?)"


@dataclass(frozen=True, slots=True)
class Field:
    """A fact that countries have."""

    name: str
    section: str
    label: str
    pattern: str
    """The answer is its first group, at the beginning of the fact."""
    phrase: str
    """As a question names it: "What is the PHRASE of Chad?"."""
    words: str
    """That a search finds it by, with the country's name."""
    unit: str = ""
    question: str = "What is the {phrase} of {of}?"

    def read(self, text: str) -> str | None:
        """The answer in the text of the fact; None when it has none, or one that says nothing."""
        found = re.match(self.pattern, text)
        return found[1].strip() if found and found[1].strip() not in ("0", "NA") else None

    def of(self, facts: Facts) -> str | None:
        """A country's answer."""
        return self.read(facts.get(self.section, {}).get(self.label, ""))

    def in_text(self, text: str) -> str | None:
        """The answer as a tool shows it: on a line of an article, or in a search result."""
        found = re.search(rf"(?:^|[:…] ){re.escape(self.label)}: ", text, re.MULTILINE)
        return self.read(text[found.end() :]) if found else None

    def ask(self, whose: str) -> str:
        return self.question.format(phrase=self.phrase, of=whose)

    def query(self, country: str) -> str:
        return f"{country} {self.words}"

    def article(self, country: str) -> str:
        return title(self.section, country)

    @property
    def most(self) -> str:
        """As a question names the largest."""
        return f"{'most' if self.question.startswith('How many') else 'highest'} {self.phrase}"

    def accepted(self, answer: str) -> list[str]:
        """The answer, and the other ways to write it."""
        bare = answer.replace(",", "")
        forms = [answer, bare, *(f"{each}{self.unit}" for each in (answer, bare) if self.unit)]
        return list(dict.fromkeys(forms))


_PEOPLE, _GEOGRAPHY, _GOVERNMENT = "People and Society", "Geography", "Government"
_ALL = (
    Field("airports", "Transportation", "Airports", _NUMBER + r"(?= |$)", "airports", "airports",
          question="How many airports are in {of}?"),
    Field("internet_code", "Communications", "Internet country code", r"(\.[a-z]{2})\b",
          "internet country code", "internet country code"),
    Field("median_age", _PEOPLE, "Median age, total", _NUMBER + " years", "median age", "median age", " years"),
    Field("life_expectancy", _PEOPLE, "Life expectancy at birth, total population", _NUMBER + " years",
          "life expectancy", "life expectancy", " years"),
    Field("birth_rate", _PEOPLE, "Birth rate", _NUMBER + " births", "birth rate", "birth rate"),
    Field("death_rate", _PEOPLE, "Death rate", _NUMBER + " deaths", "death rate", "death rate"),
    Field("fertility", _PEOPLE, "Total fertility rate", _NUMBER + " children", "fertility rate", "fertility rate"),
    Field("urban", _PEOPLE, "Urbanization, urban population", _NUMBER + "%", "urban population",
          "urban population", "%", "What percentage of the population of {of} is urban?"),
    Field("highest_point", _GEOGRAPHY, "Elevation extremes, highest point",
          r"((?!unnamed)[^\d;,(]+?) " + _NUMBER + r" m\b", "highest point", "highest point"),
    Field("coastline", _GEOGRAPHY, "Coastline", _NUMBER + r" km\b", "coastline", "coastline", " km",
          "How many kilometres is the coastline of {of}?"),
    Field("borders", _GEOGRAPHY, "Land boundaries, total", _NUMBER + r" km\b", "land boundaries", "land boundaries",
          " km", "How many kilometres are the land boundaries of {of} in total?"),
    Field("capital", _GOVERNMENT, "Capital, name", r"((?!none\b)[A-Z][^\d;,(]*?)(?:$|[;,(\n]| Government| Capital)",
          "capital", "capital"),
    Field("roadways", "Transportation", "Roadways, total", _NUMBER + r" km\b", "roadways", "roadways", " km",
          "How many kilometres of roads does {of} have?"),
    Field("calling_code", "Communications", "Telephone system, international", r"country code - ([\d-]*\d)\b",
          "telephone country code", "telephone country code"),
    Field("internet_users", "Communications", "Internet users, percent of population", _NUMBER + "%",
          "internet users", "internet users percent", "%", "What percentage of the people in {of} use the internet?"),
    Field("population", _PEOPLE, "Population", _NUMBER + r"(?= \()", "population", "population"),
)  # fmt: skip
_DETAILS = (
    Field("women_age", _PEOPLE, "Median age, female", _NUMBER + " years", "median age of women", "median age female",
          " years", "What is the median age of women in {of}?"),
    Field("men_expectancy", _PEOPLE, "Life expectancy at birth, male", _NUMBER + " years", "life expectancy of men",
          "life expectancy at birth male", " years", "What is the life expectancy of men in {of}?"),
    Field("men_age", _PEOPLE, "Median age, male", _NUMBER + " years", "median age of men", "median age male", " years",
          "What is the median age of men in {of}?"),
    Field("paved_airports", "Transportation", "Airports - with paved runways, total", _NUMBER + r"(?=\s|$)",
          "airports with paved runways", "airports with paved runways total",
          question="How many airports with paved runways are in {of}?"),
    Field("lowest_point", _GEOGRAPHY, "Elevation extremes, lowest point",
          r"((?!unnamed|.*Ocean|.*Sea\b)[^\d;,(]+?) -?" + _NUMBER + r" m\b", "lowest point", "lowest point"),
    Field("water", _GEOGRAPHY, "Area, water", _NUMBER + r" sq km\b", "area covered by water", "area water", " sq km",
          "How many square kilometres of {of} are water?"),
)  # fmt: skip
FIELDS: Mapping[str, Field] = {field.name: field for field in _ALL + _DETAILS}
SIMPLE = tuple(field.name for field in _ALL)
"""Facts that a search for their words shows at once."""
DETAILS = tuple(field.name for field in _DETAILS)
"""Facts to be read in an article, beside others that look alike."""

_BORDER = re.compile(r"([A-Z][^\d,;]*?) " + _NUMBER + r" km\b")
BORDERS = "Land boundaries, border countries"


def borders_of(facts: Facts) -> dict[str, float]:
    """How long the border with each neighbour is, in kilometres."""
    return read_borders("\n".join(f"{label}: {text}" for label, text in facts.get(_GEOGRAPHY, {}).items()))


def read_borders(text: str) -> dict[str, float]:
    """The same from an article's text: the line of the neighbours, whatever their number is."""
    line = next((line for line in text.splitlines() if line.startswith(BORDERS)), "")
    return {name: number(length) for name, length in _BORDER.findall(line.partition(": ")[2])}


def number(text: str) -> float:
    """The number that a fact begins with."""
    return float(text.replace(",", ""))
