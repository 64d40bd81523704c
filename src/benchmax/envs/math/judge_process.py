"""The judge's own process: decides with math-verify whether two answers are the same.

A line `{"answer", "truth"}` in, a line `{"same": true}` out. Each pair is compared in a fork of its own, which the
kernel ends when it takes too long or too much memory: an answer such as 9^9^9^9 is wrong after a second, and the next
one finds everything as it was.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from benchmax.envs.line_processes.child import apart, serve

MEMORY_BYTES = 2 * 2**30
_AS_LATEX = (
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"<=|≤|⩽"), r"\\le "),
    (re.compile(r">=|≥|⩾"), r"\\ge "),
    (re.compile(r"∞|(?<![\\a-zA-Z])(?:oo|inf(?:inity)?)(?![a-zA-Z])"), r"\\infty "),
    (re.compile(r"∪|(?<=[)\]])\s*(?:U|u|union|or)\s*(?=[(\[])"), r"\\cup "),
    (re.compile(r"π|(?<![\\a-zA-Z])[pP]i(?![a-zA-Z])"), r"\\pi "),
    (re.compile(r"√\s*(\d+|[a-z])"), r"\\sqrt{\1}"),
    (re.compile(r"√"), r"\\sqrt"),
    (re.compile(r"²"), "^2"),
    (re.compile(r"³"), "^3"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"[×·]"), r"\\cdot "),
    (re.compile(r"°|\bdegrees?\b"), r"^\\circ"),
    (re.compile(r"\^\s*(-?\d{2,}|-\d)"), r"^{\1}"),
    (re.compile(r"\^\s*\(([^()]*)\)"), r"^{\1}"),
)

_OR = re.compile(r"\bor\b|\\lor|\\vee")
_WARM_UP_PAIRS = (
    ("3, 2", r"\{2, 3\}"), ("2 \\le x < 5", "[2, 5)"), ("(1, 2)", "(2, 1, 3)"), (r"\sqrt{50}", r"5\sqrt{2}"),
    ("x = 2 or x = 3", r"\{2, 3\}"), (r"\frac{x}{2} + 1", "(x + 2)/2"), ("49 pi", r"7\pi"), ("A", r"\text{B}"),
    (r"(-\infty, 3) \cup (5, \infty)", "x < 3"), (r"\begin{pmatrix}1\\2\end{pmatrix}", "x^2 - 1"),
)  # fmt: skip


def as_latex(text: str) -> str | None:
    """An answer as the LaTeX of one expression; None when it is none, or tries to be several."""
    text = " ".join(text.replace("$", " ").replace("\\(", " ").replace("\\)", " ").split())
    if text.startswith("\\boxed{") and text.endswith("}"):
        text = text[len("\\boxed{") : -1]
    if not text or "boxed" in text or not _balanced(text):
        return None
    for pattern, replacement in _AS_LATEX:
        text = pattern.sub(replacement, text)
    return text.rstrip(". ")


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def same(answer: str, truth: str) -> bool:
    """Whether two answers mean the same."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    said, wanted = as_latex(answer), as_latex(truth)
    if said is None or wanted is None:
        return False
    ways = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    gold, target = (
        _joined(parse(f"\\boxed{{{text}}}", extraction_config=ways, parsing_timeout=None), text)
        for text in (wanted, said)
    )
    return bool(verify(gold, target, timeout_seconds=None, allow_set_relation_comp=True))


def _joined(parsed: list[Any], text: str) -> list[Any]:
    """The set that `x < 3 or x > 5` describes, which is read as two inequalities; anything else as it is."""
    from sympy import FiniteSet, Union
    from sympy.core.relational import Relational

    if not parsed or not isinstance(parsed[0], FiniteSet) or not _OR.search(text):
        return parsed
    parts = parsed[0].args
    if any(not isinstance(part, Relational) or part.rel_op in ("==", "!=") for part in parts):
        return parsed
    return [Union(*(part.as_set() for part in parts))]


def _warm_up() -> None:
    """Compare answers of every kind once, so that every fork has what the libraries make at first use."""
    for answer, truth in _WARM_UP_PAIRS:
        same(answer, truth)


def _answer(pair: dict[str, Any]) -> dict[str, Any]:
    """One that fails, or is ended by the kernel, found nothing equal."""
    return {"same": bool(apart(lambda: same(**pair), float(sys.argv[1]), MEMORY_BYTES))}


if __name__ == "__main__":
    serve(_warm_up, _answer)
