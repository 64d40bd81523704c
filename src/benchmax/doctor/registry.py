"""The list of checks. A check is a small function from evidence to findings, under a stable id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from benchmax import limits, plugins
from benchmax.concurrency import start_thread
from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import CheckLine, Finding, State, by_severity
from benchmax.errors import PluginError, UsageError, describe_cause

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
    """Register a check. Raises UsageError for an id that a check of another module has."""

    def register(look: Look) -> Look:
        taken = CHECKS.get(id)
        if taken is not None and taken.look.__module__ != look.__module__:
            raise UsageError(f"{taken.look.__module__} has a check {id!r} already. Give this one another id.")
        CHECKS[id] = Check(id, title, look, need)
        return look

    return register


def run_checks(evidence: Evidence) -> tuple[list[Finding], list[CheckLine]]:
    """Run every check: returns the findings, most severe first, and how each check went."""
    findings: list[Finding] = []
    lines: list[CheckLine] = []
    for each in CHECKS.values():
        run = _run if each.look.__module__.startswith("benchmax.") else _run_added
        found, skipped = run(each, evidence)
        findings += found
        state: State = "skipped" if skipped else found[0].severity if found else "passed"
        lines.append(CheckLine(each.id, each.title, state, skipped))
    return by_severity(findings), lines


def _run(check: Check, evidence: Evidence) -> tuple[list[Finding], str]:
    """The check's findings, or why it is skipped."""
    if reason := check.need(evidence):
        return [], reason
    return by_severity([replace(finding, check=check.id) for finding in check.look(evidence)]), ""


def _run_added(check: Check, evidence: Evidence) -> tuple[list[Finding], str]:
    """The same for a plug-in's check, which may fail or never end: in a thread, for a limited time."""
    ended = start_thread(partial(_run, check, evidence), f"check {check.id}")
    try:
        error = ended.exception(limits.CHECK_SECONDS)
    except TimeoutError:
        return [], _broken(check, f"did not end within {limits.CHECK_SECONDS:g} s")
    return ([], _broken(check, f"failed: {describe_cause(error)}")) if error else ended.result()


def _broken(check: Check, why: str) -> str:
    """Why a plug-in's check is skipped; its author and its user hear of it, too."""
    plugins.skip(PluginError(f"The check {check.id!r} of {check.look.__module__} {why}. Correct that module."))
    return f"the plug-in's check {why}"


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
