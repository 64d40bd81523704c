"""The list of checks. A check is a small function from what was seen to findings, under a stable id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import CheckLine, Finding, by_severity
from benchmax.envs.base_env import overrides
from benchmax.errors import describe_error

Look: TypeAlias = Callable[[Evidence], Iterator[Finding]]
Need: TypeAlias = Callable[[Evidence], str | None]
"""Gives why a check cannot run on this evidence, or None."""


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


def run_checks(evidence: Evidence) -> tuple[list[Finding], list[CheckLine]]:
    """Every check on one evidence: the findings, gravest first, and how each check went."""
    findings: list[Finding] = []
    lines: list[CheckLine] = []
    for each in CHECKS.values():
        reason = each.need(evidence) if each.need else None
        if reason:
            lines.append(CheckLine(each.id, each.title, "skipped", reason))
            continue
        try:
            found = by_severity([replace(finding, check=each.id) for finding in each.look(evidence)])
        except Exception as error:
            if each.look.__module__.startswith("benchmax."):
                raise
            lines.append(CheckLine(each.id, each.title, "skipped", f"the plug-in failed: {describe_error(error)}"))
            continue
        findings += found
        lines.append(CheckLine(each.id, each.title, found[0].severity if found else "passed"))
    return by_severity(findings), lines


# What checks need


def examples(evidence: Evidence) -> str | None:
    return None if evidence.sample else "no row could be used"


def environment(evidence: Evidence) -> str | None:
    return None if evidence.env is not None else "the environment could not be built"


def played(evidence: Evidence) -> str | None:
    return environment(evidence) or (None if evidence.shots else "nothing could be played")


def scored(evidence: Evidence) -> str | None:
    return played(evidence) or (None if evidence.scored else "no answer was scored")


def telling(evidence: Evidence) -> str | None:
    return scored(evidence) or (None if evidence.answers_matter else "every answer to a row earns the same")


def gold(evidence: Evidence) -> str | None:
    return scored(evidence) or (None if evidence.gold_text_known else "no gold answer is known")


def tools(evidence: Evidence) -> str | None:
    return environment(evidence) or (None if evidence.tools else "the environment has no tools")


def tried(*kinds: str) -> Need:
    """That answers of these kinds were played and scored, and that answers matter at all."""

    def need(evidence: Evidence) -> str | None:
        return telling(evidence) or (None if evidence.of(*kinds) else "no such answer could be made or scored here")

    return need


def called(hook: str) -> Need:
    """That a hook was called."""

    def need(evidence: Evidence) -> str | None:
        if reason := environment(evidence):
            return reason
        assert evidence.env is not None
        if not overrides(evidence.env, hook):
            return f"{hook} is not overridden"
        return None if evidence.hook(hook) else f"{hook} was never called"

    return need


def repeated(evidence: Evidence) -> str | None:
    return scored(evidence) or (None if evidence.repeats else "no answer was played twice")


def searched(evidence: Evidence) -> str | None:
    return scored(evidence) or (None if evidence.gold.tried else "no answer could be made from the task")


def trials(evidence: Evidence) -> str | None:
    return tools(evidence) or (None if evidence.trials else "no tool could be tried")


def grouped(evidence: Evidence) -> str | None:
    return played(evidence) or (None if evidence.grouped else "compute_group_reward is not overridden")
