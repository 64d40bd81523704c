"""How findings quote answers and what they earned."""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.doctor.evidence import Evidence, total_of
from benchmax.doctor.probe_player import PlayedAnswer
from benchmax.envs.datasets.rows import one_line
from benchmax.errors import BenchmaxError

QUOTE_CHARS = 160


def quote(text: str) -> str:
    """An answer in quotes: on one line, control characters escaped, the middle of a long one omitted."""
    text = one_line(text, 4_000)
    if len(text) > QUOTE_CHARS:
        text = f"{text[: QUOTE_CHARS // 2]} … {text[-QUOTE_CHARS // 2 :]}"
    return f"'{text}'" if text else "'' (nothing at all)"


def advice(error: BaseException) -> str:
    """The advice of a benchmax error, which is its last line or sentence; empty for any other error."""
    if not isinstance(error, BenchmaxError):
        return ""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if len(lines) > 1 else lines[-1].rpartition(". ")[2]


def earned(answer: PlayedAnswer) -> str:
    """What an answer earned, by component."""
    if answer.total is None:
        return "no score"
    parts = ", ".join(f"{name}={value:g}" for name, value in answer.rollout.rewards.items())
    return f"{answer.total:g} ({parts})"


def beside_gold(evidence: Evidence, kind: str) -> str:
    """The best paid answer of a kind, and the gold answer to the same example."""
    answers = evidence.best(kind)
    answer = max(answers, key=total_of)
    found = f"{quote(answer.text)} earned {earned(answer)}"
    if len({each.total for each in answers}) > 1:
        found += f", {evidence.mean(kind):.2g} on average over {len(answers)} rows"
    known = [each for each in evidence.of("gold") if each.example["id"] == answer.example["id"]]
    return f"{found}; {evidence.gold.called} {quote(known[0].text)} earns {earned(known[0])}" if known else found


def first_few(things: Sequence[object], most: int, count: int | None = None) -> str:
    """The first few, and how many more there are."""
    total = len(things) if count is None else count
    shown = [str(thing) for thing in things[:most]]
    return "; ".join([*shown, f"and {total - len(shown):,} more"] if total > len(shown) else shown)
