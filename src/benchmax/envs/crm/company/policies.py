"""What the company promises: one rule for each topic and kind of product, written down in a knowledge article.

Agents quote these rules in live chats, and sometimes wrongly: that is what a policy violation is.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from benchmax.envs.crm.company.words import FAMILIES


@dataclass(frozen=True, slots=True)
class Topic:
    """A subject on which each kind of product has a rule of its own."""

    title: str
    values: tuple[str, ...]
    rule: str
    """The rule as an article and an agent state it."""
    asked: str
    """What a customer asks an agent, and we ask a model."""
    background: str
    """What else an article says."""


def _numbers(least: int, most: int) -> tuple[str, ...]:
    return tuple(map(str, range(least, most + 1)))


_DEPOTS = (
    ("Cedar", "Pier", "Foxglove", "Quarry", "Mill", "Harbor", "Sunny", "North"),
    ("Hollow", "Yard", "Street", "Gate", "Ridge", "Lock"),
)
TOPICS = (
    Topic(
        "Return window",
        _numbers(10, 90),
        "Customers may send back {family} within {value} days of delivery.",
        "Within how many days of delivery may customers send back {family}?",
        "The parcel must hold everything that came in the box. A label is printed from the order page. Items that were "
        "used outdoors are looked at first, and the result is told by mail.",
    ),
    Topic(
        "Warranty",
        _numbers(6, 59),
        "The warranty on {family} lasts {value} months.",
        "How many months does the warranty on {family} last?",
        "It begins on the day of delivery and covers faults of material and make. Damage by water or a fall is not "
        "part of it. A receipt is enough as proof.",
    ),
    Topic(
        "Repair time",
        _numbers(2, 45),
        "A repair of {family} takes {value} working days.",
        "How many working days does a repair of {family} take?",
        "The time runs from the arrival at the workshop. If a spare part must be ordered the customer is told at once, "
        "and may take a new device in its place.",
    ),
    Topic(
        "Restocking fee",
        _numbers(1, 49),
        "The restocking fee for {family} is {value} percent of the price.",
        "What is the restocking fee for {family}, in percent of the price?",
        "It is due when a working device comes back without its packaging. It is not due when the device has a fault. "
        "It is taken off the refund.",
    ),
    Topic(
        "Return depot",
        tuple(f"{first} {second}" for first in _DEPOTS[0] for second in _DEPOTS[1]),
        "Returned {family} go to the depot {value}.",
        "To which depot do returned {family} go?",
        "The depot signs for every parcel on the day it comes. Parcels without an order number wait there for a month. "
        "Visitors need an appointment.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Policy:
    """The rule of one topic for one kind of product."""

    topic: Topic
    family: str
    value: str

    @property
    def title(self) -> str:
        return f"{self.topic.title}: {self.family}"

    def rule(self, value: str | None = None) -> str:
        """The rule in words, with another value where one is given."""
        return self.topic.rule.format(family=self.family.lower(), value=value or self.value)

    @property
    def asked(self) -> str:
        return self.topic.asked.format(family=self.family.lower())

    @property
    def article(self) -> str:
        return f"{self.rule()} {self.topic.background}"


def policies_of(rng: Random) -> list[Policy]:
    """A policy for every topic and kind of product; within a topic no two are alike."""
    found: list[Policy] = []
    for topic in TOPICS:
        values = rng.sample(topic.values, len(FAMILIES))
        found += [Policy(topic, family, value) for family, value in zip(FAMILIES, values, strict=True)]
    return found
