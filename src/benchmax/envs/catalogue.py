"""Environments that have a name: those that come with benchmax, and those that installed packages add.

A package adds one with an entry point of the group `benchmax.environments` (see `benchmax.plugins`). It cannot take
the name of a built-in environment.
"""

from __future__ import annotations

from benchmax import plugins

BUILT_IN = {
    "arithmetic": "benchmax.envs.arithmetic.arithmetic_env.ArithmeticEnv",
    "calculator": "benchmax.envs.calculator.calculator_env.CalculatorEnv",
    "math": "benchmax.envs.math.math_env.MathEnvLocal",
    "crm": "benchmax.envs.crm.crm_env.CRMEnvInProcess",
    "excel": "benchmax.envs.excel.excel_env.ExcelEnvInProcess",
    "code": "benchmax.envs.code.code_env.CodeEnv",
    "wikipedia": "benchmax.envs.wikipedia.wiki_env.WikipediaEnv",
    "search": "benchmax.envs.search.search_env.SearchEnv",
}


def environments() -> dict[str, str]:
    """The dotted path of every environment that has a name."""
    added = {name: entry.value.replace(":", ".") for name, entry in plugins.entries("environments").items()}
    return added | BUILT_IN
