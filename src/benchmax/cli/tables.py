"""An evaluation and a comparison as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmax.cli.output import print_table, safe, shorten, stdout
from benchmax.errors import plural
from benchmax.evaluation.compare import Comparison
from benchmax.evaluation.report import Reason, Report
from benchmax.evaluation.statistics import Estimate


def show_estimate(value: Estimate | None) -> str:
    if value is None:
        return "–"
    if value.n < 2:
        return f"{value.mean:.3f}"
    return f"{value.mean:.3f}  [{value.low:.3f}, {value.high:.3f}]"


def print_report(report: Report, directory: Path) -> None:
    """The report as a table."""
    table = Table(box=None, show_header=False)
    table.add_row("examples × samples", f"{report.examples} × {report.rollouts / max(1, report.examples):g}")
    table.add_row("reward", safe(show_estimate(report.reward)), style="bold")
    for name, value in report.components.items():
        table.add_row(f"  {safe(name)}", safe(show_estimate(value)))
    table.add_row("solve rate", safe(show_estimate(report.solve_rate)))
    for name, part in report.parts.items():
        earned, solved = show_estimate(part.reward), show_estimate(part.solve_rate)
        table.add_row(f"  {safe(name)}", safe(f"reward {earned}, solved {solved}, {plural(part.examples, 'example')}"))
    for k in sorted(report.pass_at):
        table.add_row(f"pass@{k}", safe(show_estimate(report.pass_at[k])))
        table.add_row(f"max@{k}", safe(show_estimate(report.max_at[k])))
    table.add_row("turns, tokens", f"{report.turns:.1f}, {report.completion_tokens:.0f} a rollout")
    if report.tool_calls:
        table.add_row("tool calls", f"{report.tool_calls:.1f} a rollout, {report.tool_errors} failed")
    table.add_row("tokens in all", f"{report.prompt_tokens_total:,} in, {report.completion_tokens_total:,} out")
    if report.cost_usd:
        table.add_row("cost", f"${report.cost_usd:.4f}")
    table.add_row("seconds", f"{report.seconds_p50:.2f} median, {report.seconds_p95:.2f} p95")
    table.add_row("ended", safe(", ".join(f"{name} {count}" for name, count in report.terminations.items())))
    unscored_reasons = _not_quoting(report.unscored_reasons, report.error_reasons.values())
    _add_failures(table, "unscored", report.unscored, unscored_reasons)
    _add_failures(table, "errors", report.errors, report.error_reasons)
    table.add_row("kept in", safe(directory))
    print_table(table)


def _add_failures(table: Table, title: str, counts: Mapping[str, int], reasons: Mapping[str, Reason]) -> None:
    """A row for each kind: how many there are, and what most of them said."""
    for at, (name, count) in enumerate(counts.items()):
        table.add_row("" if at else f"[red]{title}[/]", safe(_failure(name, count, reasons.get(name))))


def _failure(name: str, count: int, reason: Reason | None) -> str:
    kind = shorten(name, 40)
    if reason is None:
        return f"{kind} {count}"
    return f"{kind if reason.count == count else f'{kind} {count}'}: {reason.count} × {reason.message}"


def _not_quoting(reasons: Mapping[str, Reason], errors: Iterable[Reason]) -> dict[str, Reason]:
    """The reasons that do not quote an error: what a reward raises is listed as an error already."""
    quoted = tuple(each.message for each in errors if each.message)
    return {name: reason for name, reason in reasons.items() if not reason.message.endswith(quoted)}


def print_comparison(comparison: Comparison, limit: int) -> None:
    """The verdict, every component, what is left out, and the largest losses."""
    out = stdout()
    out.print(f"[bold]{comparison.verdict}[/]", end="")
    if comparison.pairs:
        out.print(
            f": reward {safe(show_estimate(comparison.reward))} on {plural(len(comparison.pairs), 'example')}", end=""
        )
    out.print()
    for name, value in comparison.components.items():
        out.print(f"  {safe(name)} {safe(show_estimate(value))}")
    for title, names in (("new", comparison.new_components), ("gone", comparison.gone_components)):
        if names:
            out.print(f"{title}: {safe(', '.join(names))}")
    if left_out := _left_out(comparison):
        out.print(f"left out: {left_out}")
    if comparison.pairs:
        _print_pairs(out, comparison, limit)


def _left_out(comparison: Comparison) -> str:
    counts = {
        "only in the first": comparison.only_in_base,
        "only in the second": comparison.only_in_other,
        "scored only in the first": comparison.scored_only_in_base,
        "scored only in the second": comparison.scored_only_in_other,
        "scored in neither": comparison.scored_in_neither,
    }
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


def _print_pairs(out: Console, comparison: Comparison, limit: int) -> None:
    shown = comparison.pairs[: limit or None]
    table = Table("example", "prompt", "base", "other", "delta", box=None, header_style="bold")
    for pair in shown:
        prompt = safe(shorten(pair.to_dict()["prompt"]))
        numbers = (f"{pair.base:.3f}", f"{pair.other:.3f}", f"{pair.delta:+.3f}")
        table.add_row(safe(pair.example_id[:10]), prompt, *numbers)
    out.print(table)
    if len(shown) < len(comparison.pairs):
        out.print(f"{len(shown)} shown, {len(comparison.pairs) - len(shown)} more; --limit 0 shows all")
