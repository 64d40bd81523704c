"""Are the rows usable, enough, and different from one another?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from benchmax import limits
from benchmax.doctor import probe_answers
from benchmax.doctor.evidence import TOLERANCE, Evidence, total_of
from benchmax.doctor.findings import Finding, error, info, warning
from benchmax.doctor.gold.ground_truths import question
from benchmax.doctor.quoting import earned, first_few, quote
from benchmax.doctor.registry import check, examples, needs
from benchmax.envs.datasets.load import overlap
from benchmax.envs.types import Example
from benchmax.errors import plural
from benchmax.metrics import pays_more

ROWS_COUNTED = 200
"""Rows whose answers are looked for."""
READ_AT_ONCE = 40
"""Words of a question up to which an answer in it is hardly one to be found there, as in a long text or an earlier
turn."""
DISTINCT_SHARE = 0.9
"""The share of different prompts from which on one that is met again is the same question."""


@check("preprocess-fails", "dataset_preprocess turns every row into an example")
def preprocess_fails(evidence: Evidence) -> Iterator[Finding]:
    bad = [issue for issue in evidence.row_issues if issue.severity == "error"]
    if evidence.data_error and not bad:
        yield error("There are no usable rows.", evidence.data_error, "Correct the file, or give another.")
    if bad:
        count = evidence.report.errors if evidence.report else len(bad)
        yield error(
            f"{plural(count, 'row problem')}.",
            first_few(bad, 3, count),
            "Correct the rows, or override dataset_preprocess.",
        )
    if evidence.eval_error:
        yield error("The evaluation rows cannot be used.", evidence.eval_error, "Correct them like the training rows.")


@check("preprocess-unstable-id", "an example's id is the same every time", examples)
def preprocess_unstable_id(evidence: Evidence) -> Iterator[Finding]:
    if evidence.unstable_rows:
        yield error(
            "The same row becomes a different example each time.",
            first_few(evidence.unstable_rows, 3),
            "Remove what is random or depends on time from dataset_preprocess; draw random things from the row itself.",
        )


@check("too-few-rows", f"at least {limits.MIN_TRAIN_ROWS} rows", examples)
def too_few_rows(evidence: Evidence) -> Iterator[Finding]:
    if len(evidence.examples) < limits.MIN_TRAIN_ROWS:
        yield warning(
            f"Too few rows to train on: {len(evidence.examples)}.",
            f"{len(evidence.examples)} usable rows; training refuses fewer than {limits.MIN_TRAIN_ROWS}.",
            f"Add rows: {limits.GOOD_TRAIN_ROWS} are recommended, 1,000 are better.",
        )


@check("duplicate-rows", "no row repeats another", examples)
def duplicate_rows(evidence: Evidence) -> Iterator[Finding]:
    repeated = len(evidence.examples) - len({example["id"] for example in evidence.examples})
    if repeated:
        yield warning(
            f"{repeated} of {len(evidence.examples)} rows repeat another.",
            f"{repeated} rows have the prompt and task of an earlier row.",
            "Remove them, unless they should count twice.",
        )
    yield from _contradictions(evidence)


def _contradictions(evidence: Evidence) -> Iterator[Finding]:
    """Rows that ask the same, where the answer to one earns nothing on the other."""
    floor = evidence.floor + TOLERANCE
    against = [each for each in evidence.of("twin") if total_of(each) <= floor] if evidence.gold_works else []
    if against:
        yield warning(
            "Rows with the same prompt want different answers.",
            f"on {quote(evidence.prompt(against[0].example)[-200:])} the answer {quote(against[0].text)} of one row "
            f"earned {earned(against[0])} on another",
            "Put what makes them different into the prompt, or keep one of them: nobody can know which is asked.",
        )


_EVAL_ROWS = needs(lambda e: e.eval_examples, "no evaluation rows were given", after=examples)


@check("train-eval-overlap", "no evaluation row is trained on", _EVAL_ROWS)
def train_eval_overlap(evidence: Evidence) -> Iterator[Finding]:
    evaluated = evidence.eval_examples or []
    shared = max(overlap(evidence.examples, evaluated), _same_prompts(evidence.examples, evaluated))
    if shared:
        yield warning(
            "Evaluation rows are also trained on.",
            f"{shared} of {len(evaluated)} evaluation examples are in the training rows.",
            "Take them out of one of the two; a score on trained rows says nothing.",
        )


def _same_prompts(trained: list[Example], evaluated: list[Example]) -> int:
    """Evaluation examples whose prompt is trained on, whatever else the rows say; 0 where prompts often repeat."""
    known = {_prompt(example) for example in trained}
    distinct = len(known) >= DISTINCT_SHARE * len(trained)
    return sum(_prompt(example) in known for example in evaluated) if distinct else 0


def _prompt(example: Example) -> str:
    return str([str(message.get("content")).lower().split() for message in example["prompt_messages"]])


_SEARCHED = needs(lambda e: e.gold.works, "no answer is known that earns", after=examples)


@check("truth-missing", "every row has an answer", _SEARCHED)
def truth_missing(evidence: Evidence) -> Iterator[Finding]:
    rows = evidence.examples[:ROWS_COUNTED]
    known: list[Example] = []
    missing: list[Example] = []
    for example in rows:
        (missing if evidence.gold.truth(example) is None else known).append(example)
    if not missing or len(missing) > len(known):
        return
    filled = set.intersection(*(_filled(example) for example in known))
    if columns := sorted(set.intersection(*(filled - _filled(example) for example in missing))):
        yield warning(
            f"{len(missing)} of {len(rows)} rows have no answer.",
            f"{', '.join(columns)} is empty there, for example in {quote(evidence.prompt(missing[0])[-200:])}",
            "Fill it, or leave these rows out: whatever a model answers there, it learns the wrong thing or nothing.",
        )


def _filled(example: Example) -> set[str]:
    """The columns that hold something; an empty list may be an answer."""
    return {name for name, value in (example.get("task") or {}).items() if value is not None and value != ""}


_KNOWN = needs(lambda e: e.gold.works or not e.gold.tried, "no answer is known that earns", after=examples)


@check("leaks-ground-truth-prompt", "the prompt does not tell the answer", _KNOWN)
def leaks_ground_truth_prompt(evidence: Evidence) -> Iterator[Finding]:
    found = [(evidence.prompt(each), truth) for each in evidence.examples[:200] if (truth := evidence.truth(each))]
    if len({truth for _, truth in found}) < 2 or _any_text_will_do(evidence):
        return
    own = [probe_answers.mentions(prompt, truth) for prompt, truth in found]
    # A prompt that lists all labels mentions the other rows' answers just as often.
    pairs = [(prompt, other, truth) for (prompt, truth), (_, other) in zip(found, found[1:] + found[:1], strict=True)]
    others = [probe_answers.mentions(prompt, other) for prompt, other, truth in pairs if other != truth]
    if not others or fmean(own) - fmean(others) < 0.5:
        return
    prompt, truth = found[own.index(True)]
    labelled = fmean(probe_answers.labelled(prompt, truth) for prompt, truth in found)
    if labelled < 0.5 and not evidence.gold.is_bare(evidence.sample[0]):
        return  # parts of a list may stand in the prompt: what is to be used, found or put in order
    asked = [question(each) for each in evidence.examples[:200] if evidence.truth(each)]
    at_hand = [
        len(text.split()) <= READ_AT_ONCE and probe_answers.mentions(text, truth)
        for text, (_, truth) in zip(asked, found, strict=True)
    ]
    yield (error if labelled >= 0.5 else warning if fmean(at_hand) >= 0.5 else info)(
        "The prompt contains the ground truth.",
        f"in {sum(own)} of {len(own)} rows; for example {truth!r} in {prompt[-400:]!r}",
        "Take the answer out of the prompt. If the prompt holds a text to find it in, all is well.",
    )


def _any_text_will_do(evidence: Evidence) -> bool:
    """Whether tool calls alone earn what the gold answer does, so that no column is known to be the answer."""
    spam, best = evidence.mean("tool-spam"), evidence.mean("gold")
    return spam is not None and best is not None and evidence.gold_works and not pays_more(best, spam)
