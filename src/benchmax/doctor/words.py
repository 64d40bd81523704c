"""How scored answers are quoted in findings."""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.doctor.probe_player import Shot
from benchmax.envs.datasets.rows import one_line
from benchmax.errors import BenchmaxError

QUOTE_CHARS = 160


def shown(text: str) -> str:
    """An answer in quotes: on one line, control characters escaped, the middle of a long one left out."""
    text = one_line(text, 4_000)
    if len(text) > QUOTE_CHARS:
        text = f"{text[: QUOTE_CHARS // 2]} … {text[-QUOTE_CHARS // 2 :]}"
    return f"'{text}'" if text else "'' (nothing at all)"


def advice(error: BaseException) -> str:
    """What an error of benchmax tells to do, which is its last line or sentence; nothing for any other."""
    if not isinstance(error, BenchmaxError):
        return ""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if len(lines) > 1 else lines[-1].rpartition(". ")[2]


def paid(shot: Shot) -> str:
    """What an answer earned, by component."""
    if shot.total is None:
        return "no score"
    parts = ", ".join(f"{name}={value:g}" for name, value in shot.rollout.rewards.items())
    return f"{shot.total:g} ({parts})"


def first_of(things: Sequence[object], most: int, count: int | None = None) -> str:
    """The first few, and how many more there are."""
    total = len(things) if count is None else count
    shown = [str(thing) for thing in things[:most]]
    return "; ".join([*shown, f"and {total - len(shown):,} more"] if total > len(shown) else shown)
