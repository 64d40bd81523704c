"""Environments that have a name: those that come with benchmax, and those that installed packages add.

A package adds one with an entry point of the group `benchmax.environments` (see `benchmax.plugins`). It cannot take
the name of a built-in environment.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmax import plugins

BUILT_IN = {
    "arithmetic": "benchmax.envs.arithmetic.arithmetic_env.ArithmeticEnv",
    "calculator": "benchmax.envs.calculator.calculator_env.CalculatorEnv",
    "math": "benchmax.envs.math.math_env.MathEnvLocal",
    "crm": "benchmax.envs.crm.crm_env.CRMEnvInProcess",
    "code": "benchmax.envs.code.code_env.CodeEnv",
}


class Listing(NamedTuple):
    """What lists of environments say of one, without making it."""

    datasets: tuple[str, ...] = ()
    """Names that its `load_dataset` makes rows for, the one that is taken when none is given first."""
    tools: tuple[str, ...] = ()
    """Tools that it has when it is made without arguments."""


LISTINGS = {
    "arithmetic": Listing(("sums", "sums2")),
    "calculator": Listing(("products",), ("calculate",)),
    "math": Listing(
        ("arithmetic", "sums", "expressions", "fractions", "algebra", "words", "competition"), ("calculate",)
    ),
    "crm": Listing(("lookup", "steps", "reports"), ("search_knowledge_articles",)),
    "code": Listing(("lines", "steps", "cases", "algorithms")),
}


def listing(name: str) -> Listing:
    """Of a built-in environment; of others nothing is known before they are made."""
    return LISTINGS.get(name, Listing())


def environments() -> dict[str, str]:
    """The dotted path of every environment that has a name."""
    added = {name: entry.value.replace(":", ".") for name, entry in plugins.entries("environments").items()}
    return added | BUILT_IN
