"""Strategies that need no understanding: a model under training may end at what they earn.

A model finds these before it solves the task: the same answer to everything, the question repeated in the requested
form, the first or the longest of the options. Where one of them earns much, training stops there.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmax.doctor.gold.answer_formats import PLAIN, SLOT, Form
from benchmax.doctor.gold.answer_search import OWN_GOLD, Gold
from benchmax.doctor.gold.ground_truths import options, question, truth_text
from benchmax.doctor.probe_player import PlayedAnswer, Probe, ProbePlayer
from benchmax.envs.types import Example

MOST_CONSTANTS = 3
"""Most frequent answers tried on every row."""
LONGEST = 600
"""Characters of a question that is worth repeating."""
ROWS_COUNTED = 400
"""Rows whose answers are counted."""

LAZY_SHARE = 0.25
"""The share of the gold reward from which on a lazy strategy is reported."""
ROWS_MEASURED = 16
"""Further rows on which a strategy is played that earns so much on a few."""

NAMES = {
    "echo": "repeating the question in the form",
    "first": "always the first option",
    "longest": "always the longest option",
    "constant": "always the same answer",
}
"""The name of each strategy, by the first word of its kind."""


def answer_form(gold: Gold, example: Example) -> Form:
    """The form in which answers earn; derived from the environment's own gold answer where it has one."""
    best = gold.best
    if best is not None and best.label != OWN_GOLD:
        return best.form
    own, truth = gold.own(example), truth_text(example)
    if own and truth and truth in own:
        return Form("as gold_completion", own.replace(truth, SLOT))
    return gold.asked[0] if gold.asked else PLAIN


def lazy_answers(example: Example, gold: Gold, examples: Sequence[Example]) -> Iterator[tuple[str, str]]:
    """(kind, text) of every lazy answer to one example; `examples` show which answers are frequent."""
    form, asked = answer_form(gold, example), question(example)
    if asked and len(asked) <= LONGEST and form is not PLAIN:
        yield "echo-in-form", form.write(asked)
    yield from _options_in(form, example, gold)
    texts = Counter(text for example in examples[:ROWS_COUNTED] if (text := gold.text(example)) is not None)
    for place, (text, count) in enumerate(texts.most_common(MOST_CONSTANTS)):
        if count > 1:
            yield f"constant-{place}", text
    if re.fullmatch(r"\s*-?[\d.,]+\s*", gold.truth(example) or ""):
        # Many formulas divide by it, or are undefined there.
        yield "constant-zero", form.write("0")


def _options_in(form: Form, example: Example, gold: Gold) -> Iterator[tuple[str, str]]:
    """(kind, text) of the first and the longest option, and of their letters."""
    if offered := options(example, gold.best.label if gold.best else ""):
        longest = max(range(len(offered)), key=lambda at: len(offered[at]))
        for kind, at in (("first-option", 0), ("longest-option", longest)):
            yield kind, form.write(offered[at])
            yield f"{kind}-letter", form.write(string.ascii_uppercase[at % 26])


def strategy(kind: str) -> str:
    """The name of a kind's strategy; empty for an answer of no strategy."""
    first, dash, _ = kind.partition("-")
    return NAMES.get(first, "") if dash else ""


def earnings(answers: Sequence[PlayedAnswer], gold: Gold, examples: Sequence[Example]) -> dict[str, float]:
    """What each strategy earns on average: its best variant, the same one on every row."""
    best: dict[str, float] = {}
    for kind, mean in earnings_of_kinds(answers, gold, examples).items():
        best[strategy(kind)] = max(mean, best.get(strategy(kind), float("-inf")))
    return best


def earnings_of_kinds(answers: Sequence[PlayedAnswer], gold: Gold, examples: Sequence[Example]) -> dict[str, float]:
    """The same for each variant."""
    by_kind: dict[str, list[PlayedAnswer]] = {}
    for answer in answers:
        if answer.total is not None and strategy(answer.kind):
            by_kind.setdefault(answer.kind, []).append(answer)
    golds = [(example, gold.text(example)) for example in examples[:ROWS_COUNTED]] if by_kind else []
    return {
        kind: _mean(played) if kind.startswith("echo-") else _mean_on_all(kind, played, gold, golds)
        for kind, played in by_kind.items()
    }


async def play_suspects(
    player: ProbePlayer, gold: Gold, answers: Sequence[PlayedAnswer], examples: Sequence[Example]
) -> list[PlayedAnswer]:
    """Play what seems to pay on more rows: of several strategies on a few, one is lucky."""
    earned = earnings_of_kinds(answers, gold, examples) if gold.works and gold.best else {}
    enough = gold.floor + LAZY_SHARE * (gold.earned[gold.best] - gold.floor) if gold.best else 0.0
    suspects = [kind for kind, paid in earned.items() if paid >= enough]
    known = {answer.example["id"] for answer in answers}
    others = [example for example in examples if example["id"] not in known] if suspects else []
    spread = others[:: max(1, len(others) // ROWS_MEASURED)][:ROWS_MEASURED]
    return await play_lazily(player, gold, spread, examples, suspects)


def _mean(played: Sequence[PlayedAnswer]) -> float:
    return fmean(answer.total for answer in played if answer.total is not None)


def _mean_on_all(
    kind: str, played: Sequence[PlayedAnswer], gold: Gold, golds: Sequence[tuple[Example, str | None]]
) -> float:
    """What a strategy earns on all rows. It was played on few, where it may be right more often than it is."""
    right = [answer for answer in played if gold.text(answer.example) == answer.text]
    wrong = [answer for answer in played if answer not in right]
    if kind.startswith("constant-"):
        share = sum(text == played[0].text for _, text in golds) / len(golds)
    else:
        form = answer_form(gold, played[0].example)
        share = sum(text == dict(_options_in(form, example, gold)).get(kind) for example, text in golds) / len(golds)
    known = gold.earned.get(gold.best, _mean(played)) if gold.best is not None else _mean(played)
    return share * (_mean(right) if right else known) + (1 - share) * (_mean(wrong) if wrong else gold.floor)


async def play_lazily(
    player: ProbePlayer,
    gold: Gold,
    examples: Sequence[Example],
    counted: Sequence[Example],
    kinds: Sequence[str] | None = None,
) -> list[PlayedAnswer]:
    """Play every lazy strategy, or only some, on some examples."""
    answers: list[PlayedAnswer] = []
    for example in examples:
        found = lazy_answers(example, gold, counted)
        probes = [Probe(kind, text) for kind, text in found if kinds is None or kind in kinds]
        answers += await player.play(example, probes) if probes else []
    return answers
