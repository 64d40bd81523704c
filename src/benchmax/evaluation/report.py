"""The report on a set of rollouts: how a model does on an environment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isinf
from statistics import fmean
from typing import Any

from benchmax import metrics
from benchmax.evaluation.statistics import Estimate, estimate, estimate_share, max_at_k, pass_at_k, quantile
from benchmax.rollouts.record import Rollout

REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class Reason:
    """The most common message of one kind of failure."""

    message: str
    count: int


@dataclass(slots=True)
class Report:
    """Reward, solve rate, pass@k, max@k and the rest, with confidence intervals over examples."""

    examples: int = 0
    rollouts: int = 0
    scored: int = 0
    reward: Estimate | None = None
    solve_rate: Estimate | None = None
    """Share of samples that solved their task (`metrics.solved`)."""
    pass_at: dict[int, Estimate] = field(default_factory=dict)
    """Chance that one of k samples solves its task."""
    max_at: dict[int, Estimate] = field(default_factory=dict)
    """Expected best reward of k samples."""
    components: dict[str, Estimate] = field(default_factory=dict)
    unscored: dict[str, int] = field(default_factory=dict)
    terminations: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    unscored_reasons: dict[str, Reason] = field(default_factory=dict)
    """Why, most often, each component could not be scored."""
    error_reasons: dict[str, Reason] = field(default_factory=dict)
    turns: float = 0.0
    completion_tokens: float = 0.0
    tool_calls: float = 0.0
    tool_errors: int = 0
    prompt_tokens_total: int = 0
    completion_tokens_total: int = 0
    cost_usd: float = 0.0
    seconds_p50: float = 0.0
    seconds_p95: float = 0.0
    parts: dict[str, Report] = field(default_factory=dict)
    """The report on each part of a composed environment."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; an interval that is unknown (one example) has null ends."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and isinf(value) else value


def by_example(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    groups: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.example_id].append(rollout)
    return dict(groups)


def summarise(rollouts: Sequence[Rollout], *, primary: metrics.Primary = None) -> Report:
    """The report on a set of rollouts. Unscored samples are counted, and excluded from every mean."""
    report = _summary(rollouts, primary)
    for part in primary if isinstance(primary, Mapping) else ():
        report.parts[part] = _summary([rollout for rollout in rollouts if rollout.env == part], primary)
    return report


def _summary(rollouts: Sequence[Rollout], primary: metrics.Primary) -> Report:
    groups = list(by_example(rollouts).values())
    scored = [kept for group in groups if (kept := [r for r in group if r.reward is not None])]
    report = Report(examples=len(groups), rollouts=len(rollouts), scored=sum(map(len, scored)))
    report.reward = estimate([fmean(r.reward or 0.0 for r in group) for group in scored])
    report.solve_rate = estimate_share([fmean(metrics.solved(r, primary) for r in group) for group in scored])
    _add_at_k(report, scored, primary)
    for name in sorted({name for rollout in rollouts for name in rollout.rewards}):
        values = [[r.rewards[name] for r in group if name in r.rewards] for group in groups]
        if component := estimate([fmean(each) for each in values if each]):
            report.components[name] = component
    _add_counts(report, rollouts)
    return report


def _add_at_k(report: Report, groups: Sequence[Sequence[Rollout]], primary: metrics.Primary) -> None:
    if not groups:
        return
    most = min(len(group) for group in groups)
    for k in sorted({1, most} | {k for k in (2, 4, 8, 16, 32) if k < most}):
        passed = [sum(metrics.solved(r, primary) for r in group) for group in groups]
        shares = [pass_at_k(count, len(group), k) for count, group in zip(passed, groups, strict=True)]
        best = [max_at_k([r.reward or 0.0 for r in group], k) for group in groups]
        if (passing := estimate_share(shares)) and (highest := estimate(best)):
            report.pass_at[k], report.max_at[k] = passing, highest


def _add_counts(report: Report, rollouts: Sequence[Rollout]) -> None:
    count = max(1, len(rollouts))
    report.unscored = dict(Counter(name for rollout in rollouts for name in rollout.unscored).most_common())
    report.terminations = dict(Counter(rollout.termination.value for rollout in rollouts).most_common())
    report.errors = dict(Counter(rollout.error.type for rollout in rollouts if rollout.error).most_common())
    report.unscored_reasons = _reasons((name, why) for rollout in rollouts for name, why in rollout.unscored.items())
    report.error_reasons = _reasons((each.error.type, each.error.message) for each in rollouts if each.error)
    report.turns = sum(rollout.turns for rollout in rollouts) / count
    report.completion_tokens_total = sum(rollout.usage.completion_tokens for rollout in rollouts)
    report.prompt_tokens_total = sum(rollout.usage.prompt_tokens for rollout in rollouts)
    report.completion_tokens = report.completion_tokens_total / count
    report.tool_calls = sum(len(rollout.tool_events) for rollout in rollouts) / count
    report.tool_errors = sum(not event.ok for rollout in rollouts for event in rollout.tool_events)
    report.cost_usd = sum(rollout.usage.cost_usd for rollout in rollouts)
    seconds = [rollout.seconds.get("total", 0.0) for rollout in rollouts]
    report.seconds_p50, report.seconds_p95 = quantile(seconds, 0.5), quantile(seconds, 0.95)


def _reasons(failures: Iterable[tuple[str, str]]) -> dict[str, Reason]:
    """The most frequent message of each kind, as one line of bounded length."""
    messages: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, message in failures:
        messages[kind][cut_middle(" ".join(str(message).split()), REASON_CHARS)] += 1
    return {kind: Reason(*counts.most_common(1)[0]) for kind, counts in messages.items()}


def cut_middle(text: str, most: int) -> str:
    """The text, cut in its middle where it is too long: its end says what to do."""
    if len(text) <= most:
        return text
    head = most // 3
    return f"{text[:head]}…{text[head + 1 - most :]}"
