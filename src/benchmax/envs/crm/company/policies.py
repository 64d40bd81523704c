"""What the company promises: one rule for each topic and kind of product, written down in a knowledge article.

Agents quote these rules in live chats, and sometimes wrongly: that is what a policy violation is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from benchmax.envs.crm.company import words


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


def _topic(written: Mapping[str, Any]) -> Topic:
    if "numbers" in written:
        least, most = written["numbers"]
        values = tuple(map(str, range(least, most + 1)))
    else:
        values = tuple(map(" ".join, product(*written["places"])))
    return Topic(written["title"], values, written["rule"], written["asked"], written["background"])


TOPICS = tuple(map(_topic, words.TOPICS))


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
        values = rng.sample(topic.values, len(words.FAMILIES))
        found += [Policy(topic, family, value) for family, value in zip(words.FAMILIES, values, strict=True)]
    return found
