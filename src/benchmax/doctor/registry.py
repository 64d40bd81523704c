"""The list of checks. A check is a small function from evidence to findings, under a stable id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import CheckLine, Finding, State, by_severity
from benchmax.errors import describe_error

Look: TypeAlias = Callable[[Evidence], Iterator[Finding]]
Need: TypeAlias = Callable[[Evidence], str | None]
"""Returns why a check cannot run on this evidence, or None."""


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    title: str
    """What is true of a good environment."""
    look: Look
    need: Need


CHECKS: dict[str, Check] = {}


def check(id: str, title: str, need: Need = lambda evidence: None) -> Callable[[Look], Look]:
    """Register a check."""

    def register(look: Look) -> Look:
        CHECKS[id] = Check(id, title, look, need)
        return look

    return register


def run_checks(evidence: Evidence) -> tuple[list[Finding], list[CheckLine]]:
    """Run every check: returns the findings, most severe first, and how each check went."""
    findings: list[Finding] = []
    lines: list[CheckLine] = []
    for each in CHECKS.values():
        found: list[Finding] = []
        skipped = each.need(evidence) or ""
        try:
            looked = () if skipped else each.look(evidence)
            found = by_severity([replace(finding, check=each.id) for finding in looked])
        except Exception as error:
            if each.look.__module__.startswith("benchmax."):
                raise
            skipped = f"the plug-in failed: {describe_error(error)}"
        findings += found
        state: State = "skipped" if skipped else found[0].severity if found else "passed"
        lines.append(CheckLine(each.id, each.title, state, skipped))
    return by_severity(findings), lines


# What checks need


def needs(holds: Callable[[Evidence], object], reason: str, *, after: Need = lambda evidence: None) -> Need:
    """A need: `holds` is true of the evidence, or the check is skipped for this reason."""
    return lambda evidence: after(evidence) or (None if holds(evidence) else reason)


examples = needs(lambda evidence: evidence.sample, "no row could be used")
environment = needs(lambda evidence: evidence.env is not None, "the environment could not be built")
played = needs(lambda evidence: evidence.answers, "nothing could be played", after=environment)
scored = needs(lambda evidence: evidence.scored, "no answer was scored", after=played)
varied = needs(lambda evidence: evidence.answers_matter, "every answer to a row earns the same", after=scored)
steady = needs(lambda evidence: not evidence.erratic, "the same answer earns different rewards", after=varied)
gold = needs(lambda evidence: evidence.gold_text_known, "no gold answer is known", after=scored)
tools = needs(lambda evidence: evidence.tools, "the environment has no tools", after=environment)
tried_tools = needs(lambda evidence: evidence.tool_trials, "no tool could be tried", after=tools)
repeated = needs(lambda evidence: evidence.repeats, "no answer was played twice", after=scored)
searched = needs(lambda evidence: evidence.gold.tried, "no answer could be made from the task", after=scored)
grouped = needs(lambda evidence: evidence.grouped, "compute_group_reward is not overridden", after=played)


def tried(*kinds: str) -> Need:
    """Answers of these kinds were played and scored, and the reward depends on the answer at all."""
    return needs(lambda evidence: evidence.of(*kinds), "no such answer could be made or scored here", after=steady)


def called(hook: str) -> Need:
    """The hook is overridden and was called."""
    own = needs(lambda evidence: evidence.overrides(hook), f"{hook} is not overridden", after=environment)
    return needs(lambda evidence: evidence.hook(hook), f"{hook} was never called", after=own)
