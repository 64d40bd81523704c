"""The list of checks. A check is a small function from what was seen to findings, under a stable id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from benchmax.doctor.chart import Chart
from benchmax.doctor.findings import CheckLine, Finding, by_severity

Look: TypeAlias = Callable[[Chart], Iterator[Finding]]
Need: TypeAlias = Callable[[Chart], str | None]
"""Gives why a check cannot run on this chart, or None."""


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    title: str
    """What is true of a good environment."""
    look: Look
    need: Need | None = None


CHECKS: dict[str, Check] = {}


def check(id: str, title: str, need: Need | None = None) -> Callable[[Look], Look]:
    """Register a check."""

    def register(look: Look) -> Look:
        CHECKS[id] = Check(id, title, look, need)
        return look

    return register


def run_checks(chart: Chart) -> tuple[list[Finding], list[CheckLine]]:
    """Every check on one chart: the findings, gravest first, and how each check went."""
    findings: list[Finding] = []
    lines: list[CheckLine] = []
    for each in CHECKS.values():
        reason = each.need(chart) if each.need else None
        if reason:
            lines.append(CheckLine(each.id, each.title, "skipped", reason))
            continue
        found = by_severity([replace(finding, check=each.id) for finding in each.look(chart)])
        findings += found
        lines.append(CheckLine(each.id, each.title, found[0].severity if found else "passed"))
    return by_severity(findings), lines


# What checks need


def examples(chart: Chart) -> str | None:
    return None if chart.sample else "no row could be used"


def environment(chart: Chart) -> str | None:
    return None if chart.env is not None else "the environment could not be built"


def played(chart: Chart) -> str | None:
    return environment(chart) or (None if chart.shots else "nothing could be played")


def scored(chart: Chart) -> str | None:
    return played(chart) or (None if chart.scored else "no answer was scored")


def telling(chart: Chart) -> str | None:
    return scored(chart) or (None if chart.answers_matter else "every answer to a row earns the same")


def gold(chart: Chart) -> str | None:
    return scored(chart) or (None if chart.gold_text_known else "no gold answer is known")


def tools(chart: Chart) -> str | None:
    return environment(chart) or (None if chart.tools else "the environment has no tools")


def trials(chart: Chart) -> str | None:
    return tools(chart) or (None if chart.trials else "no tool could be tried")


def grouped(chart: Chart) -> str | None:
    return played(chart) or (None if chart.grouped else "compute_group_reward is not overridden")
