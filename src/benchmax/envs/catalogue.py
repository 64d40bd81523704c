"""Environments that have a name: those that come with benchmax, and those that installed packages add.

A package adds one with an entry point of the group `benchmax.environments` (see `benchmax.plugins`). It cannot take
the name of a built-in environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from benchmax import plugins
from benchmax.envs.composed.parts import is_composed, split_parts

BUILT_IN = {
    "arithmetic": "benchmax.envs.arithmetic.arithmetic_env.ArithmeticEnv",
    "calculator": "benchmax.envs.calculator.calculator_env.CalculatorEnv",
    "math": "benchmax.envs.math.math_env.MathEnvLocal",
    "crm": "benchmax.envs.crm.crm_env.CRMEnvInProcess",
    "excel": "benchmax.envs.excel.excel_env.ExcelEnvInProcess",
    "code": "benchmax.envs.code.code_env.CodeEnv",
    "wikipedia": "benchmax.envs.wikipedia.wiki_env.WikipediaEnv",
    "search": "benchmax.envs.search.search_env.SearchEnv",
    "telestich": "benchmax.envs.telestich.telestich_env.TelestichEnv",
    "reasoning": "benchmax.envs.reasoning.reasoning_env.ReasoningEnv",
}
FAMILIES = {"reasoning": "benchmax.envs.reasoning.tasks"}
"""Names before a slash, `reasoning/leg_counting`, and the module that knows their members."""
plugins.reserve("environments", BUILT_IN)


class Listing(NamedTuple):
    """What lists of environments say of one, without making it."""

    datasets: tuple[str, ...] = ()
    """Names that its `load_dataset` makes rows for, the one that is taken when none is given first."""
    tools: tuple[str, ...] = ()
    """Tools that it has when it is made without arguments."""
    more_tools: Mapping[str, int] = {}
    """How many tools it has when it is made with an argument, `KEY=VALUE`."""
    rows: int = 0
    """Rows that it makes when no dataset is named; 0 where that is only known when they are made."""


_EXCEL_TOOLS = {"level=tables": 2, "level=conditions": 2, "level=reports": 3, "level=manipulation": 4}
LISTINGS = {
    "arithmetic": Listing(("sums", "sums2"), rows=99),
    "calculator": Listing(("products",), ("calculate",), rows=1000),
    "math": Listing(
        ("arithmetic", "sums", "expressions", "fractions", "algebra", "words", "competition"), ("calculate",), rows=1000
    ),
    "crm": Listing(
        ("lookup", "steps", "reports"), ("search_knowledge_articles",), {"level=steps": 12, "level=reports": 25}, 320
    ),
    "excel": Listing(
        ("formulas", "tables", "conditions", "reports", "manipulation"), ("set_cell",), _EXCEL_TOOLS, 1000
    ),
    "code": Listing(("lines", "steps", "cases", "algorithms"), (), {"tools=true": 1}, 1000),
    "wikipedia": Listing(("facts", "articles", "hops", "chains"), ("get_wikipedia_article", "search_wikipedia")),
    "search": Listing(("lookup", "steps", "chains"), ("search",), rows=640),
    "telestich": Listing(("acrostic", "telestich", "double", "long"), rows=1000),
    "reasoning": Listing(("easy", "default", "medium", "hard"), rows=400),
}


def listing(name: str) -> Listing:
    """The listing of a built-in environment; an empty one for others, which are only known once they are made."""
    return LISTINGS.get(name, Listing())


def environments() -> dict[str, str]:
    """The dotted path of every environment that has a name."""
    added = {name: entry.value.replace(":", ".") for name, entry in plugins.entries("environments").items()}
    return added | BUILT_IN


def is_added(name: str) -> bool:
    """Whether a name is an environment's that a package adds."""
    return name in environments() and name not in BUILT_IN


def members(family: str) -> list[str]:
    """The environments of a family, by their whole names."""
    return [f"{family}/{name}" for name in import_module(FAMILIES[family]).members()] if family in FAMILIES else []


def member_class(name: str) -> Any:
    """The class of an environment of a family; None for a name of no family, NotFoundError for one it does not have."""
    family, slash, member = name.partition("/")
    return import_module(FAMILIES[family]).member(member) if slash and family in FAMILIES else None


def is_named(name: str) -> bool:
    """Whether a name is in the catalogue: of an environment, of one of a family, or of several of these."""
    if is_composed(name):
        return all(map(is_named, split_parts(name)))
    family, slash, _ = name.partition("/")
    return name in environments() or bool(slash and name in members(family))
