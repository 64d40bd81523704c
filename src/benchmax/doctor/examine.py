"""From an environment class and rows to a diagnosis."""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import islice
from random import Random
from statistics import fmean, pstdev
from time import perf_counter
from typing import Any

from benchmax.concurrency import run_sync
from benchmax.doctor import checks as checks  # registers them
from benchmax.doctor.composed import examine_parts
from benchmax.doctor.evidence import PACES, Evidence, Pace
from benchmax.doctor.evidence_collector import EvidenceCollector
from benchmax.doctor.findings import ComponentStat, Diagnosis, ScoredAnswer, held_interpreter
from benchmax.doctor.gold.ground_truths import question
from benchmax.doctor.interpreter_watch import InterpreterHeld, can_watch, run_in_child
from benchmax.doctor.probe_player import PlayedAnswer
from benchmax.doctor.recording_host import RecordingHost
from benchmax.doctor.registry import run_checks
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.composed.composed_env import ComposedEnv
from benchmax.envs.datasets.load import DatasetReport, load_examples, stream_examples
from benchmax.envs.datasets.readers import Source, read_rows, source_name
from benchmax.envs.legacy import example_from
from benchmax.envs.loading import refuse_unwritten_hooks
from benchmax.errors import ConfigError, UsageError

ROWS_READ = 100_000
"""Rows that are read; problems of rows show long before."""
ROWS_TWICE = 20
"""Rows preprocessed twice, to see whether their ids are stable."""
PROBE_ROWS = 1_000
"""Rows passed to validate_probe."""


async def examine(
    env_class: type[BaseEnv],
    env_args: dict[str, Any] | None = None,
    rows: Source = (),
    eval_rows: Source | None = None,
    *,
    examples: int = 8,
    seed: int = 0,
    pace: str | Pace = "normal",
    group_samples: int = 2,
    max_turns: int | None = None,
    max_tool_calls: int | None = None,
    supervised: bool = False,
) -> Diagnosis:
    """Examine an environment on `examples` of its rows. What is wrong becomes a finding and is not raised."""
    rows, eval_rows = _rereadable(rows), _rereadable(eval_rows)
    if issubclass(env_class, ComposedEnv):

        async def examine_part(name: str, own: list[Any], held_out: list[Any] | None) -> Diagnosis:
            return await examine(
                env_class.parts[name], (env_args or {}).get(name), own, held_out, examples=examples, seed=seed,
                pace=pace, group_samples=group_samples, max_turns=max_turns, max_tool_calls=max_tool_calls,
                supervised=supervised,
            )  # fmt: skip

        return await examine_parts(env_class, rows, eval_rows, examine_part)
    began = perf_counter()
    evidence = Evidence(env_class, dict(env_args or {}), pace=_pace(pace), supervised=supervised)
    await asyncio.to_thread(_read, evidence, rows, eval_rows)
    if evidence.examples:
        count = min(max(1, examples), len(evidence.examples))
        picked = sorted(Random(seed).sample(range(len(evidence.examples)), count))
        evidence.sample = [evidence.examples[index] for index in picked]
    budgets = {"max_turns": max_turns, "max_tool_calls": max_tool_calls}
    await _visit(evidence, budgets, group_samples, eval_rows if eval_rows is not None else rows)
    return _conclude(evidence, perf_counter() - began)


def examine_sync(env_class: type[BaseEnv], env_args: dict[str, Any] | None = None, **options: Any) -> Diagnosis:
    """`examine` for code that is not async, or that runs inside a notebook's loop."""
    return run_sync(examine(env_class, env_args, **options))


def examine_apart(env_class: type[BaseEnv], env_args: dict[str, Any] | None = None, **options: Any) -> Diagnosis:
    """The same in a child process, where the system can fork: code that holds the interpreter would block this one."""
    if not can_watch():
        return examine_sync(env_class, env_args, **options)
    try:
        result = run_in_child(lambda: examine_sync(env_class, env_args, supervised=True, **options).to_dict())
    except InterpreterHeld as held:
        return held_interpreter(env_class.__name__, held)
    return Diagnosis.from_dict(result)


def _pace(pace: str | Pace) -> Pace:
    if isinstance(pace, Pace):
        return pace
    if pace not in PACES:
        raise ConfigError(f"pace is {pace!r}; use one of {', '.join(PACES)}.")
    return PACES[pace]


def _rereadable(rows: Any) -> Any:
    """Rows that can be read more than once; an iterator cannot."""
    return list(islice(rows, ROWS_READ)) if isinstance(rows, Iterable) and iter(rows) is rows else rows


# Data


def _read(evidence: Evidence, rows: Source, eval_rows: Source | None) -> None:
    report = DatasetReport(source_name(rows), lenient=True)
    try:
        found = stream_examples(islice(read_rows(rows), ROWS_READ), evidence.env_class, report)
        evidence.examples = list(found)
        # The report counts every problem; the error that is raised holds the first of them alone.
        evidence.report, evidence.row_issues = report, report.issues
        report.raise_if_bad()
    except UsageError as error:
        evidence.data_error = str(error)
        evidence.row_issues = evidence.row_issues or list(getattr(error, "issues", ()))
    evidence.rows = report.rows
    evidence.unstable_rows = _unstable(evidence.env_class, rows) if evidence.examples else []
    if eval_rows is not None:
        try:
            evidence.eval_examples = load_examples(eval_rows, evidence.env_class, limit=ROWS_READ).examples
        except UsageError as error:
            evidence.eval_error = str(error)


def _unstable(env_class: type[BaseEnv], rows: Source) -> list[str]:
    """Rows whose example has another id the second time."""
    changed = []
    for row in islice(read_rows(rows), ROWS_TWICE):
        try:
            first, second = (example_from(env_class.dataset_preprocess(copy.deepcopy(row.data))) for _ in range(2))
        except (Exception, SystemExit):  # reported by preprocess-fails
            continue
        if first["id"] != second["id"]:
            changed.append(f"row {row.number}: {first['id'][:12]}…, then {second['id'][:12]}…")
    return changed


# Environment


async def _visit(evidence: Evidence, budgets: dict[str, Any], group_samples: int, rows: Source) -> None:
    async with AsyncExitStack() as stack:
        try:
            refuse_unwritten_hooks(evidence.env_class)
            host = RecordingHost(lambda: evidence.env_class(**evidence.env_args))
            await stack.enter_async_context(host)
        except Exception as error:
            evidence.build_error = error
            return
        own = _readable(rows) if host.overrides("validate_probe") else []
        await EvidenceCollector(evidence, host, budgets, group_samples).run(own)


def _readable(rows: Source) -> list[Any]:
    """Rows for the environment's own check, without those that cannot be read, which preprocess-fails reports."""
    try:
        return [row.data for row in islice(read_rows(rows), PROBE_ROWS) if row.fault is None]
    except UsageError:
        return []


# Conclusions


def _conclude(evidence: Evidence, seconds: float) -> Diagnosis:
    findings, lines = run_checks(evidence)
    return Diagnosis(
        env=evidence.env_class.__name__,
        findings=findings,
        checks=lines,
        components=component_stats(evidence.scored),
        answers=[_scored_answer(answer, evidence.truth(answer.example)) for answer in evidence.answers],
        rows=evidence.rows,
        examples=len(evidence.sample) if evidence.answers else 0,
        seconds=seconds,
    )


def component_stats(answers: list[PlayedAnswer]) -> list[ComponentStat]:
    """Each component over all answers, and by kind of answer."""
    by_kind: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        for name, value in answer.rollout.rewards.items():
            by_kind[name][answer.kind].append(value)
    stats = []
    for name, groups in by_kind.items():
        values = [value for group in groups.values() for value in group]
        means = {kind: round(fmean(group), 6) for kind, group in groups.items()}
        stats.append(ComponentStat(name, fmean(values), pstdev(values), min(values), max(values), means))
    return stats


def _scored_answer(answer: PlayedAnswer, truth: str | None) -> ScoredAnswer:
    rollout = answer.rollout
    note = "; ".join(f"{name}: {reason}" for name, reason in rollout.unscored.items())
    return ScoredAnswer(
        answer.kind, question(answer.example), truth or "", answer.text, dict(rollout.rewards), rollout.reward, note
    )
