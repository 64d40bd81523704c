"""Are the rows usable, enough, and different from one another?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from benchmax import limits
from benchmax.doctor import probe_answers
from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import Finding, error, warning
from benchmax.doctor.quoting import first_few
from benchmax.doctor.registry import check, examples, needs
from benchmax.envs.datasets.load import overlap


@check("preprocess-fails", "dataset_preprocess turns every row into an example")
def preprocess_fails(evidence: Evidence) -> Iterator[Finding]:
    bad = [issue for issue in evidence.row_issues if issue.severity == "error"]
    if evidence.data_error and not bad:
        yield error("There are no usable rows.", evidence.data_error, "Give rows with a prompt (or messages) column.")
    if bad:
        count = evidence.report.errors if evidence.report else len(bad)
        yield error(
            f"{count} row problems.", first_few(bad, 3, count), "Correct the rows, or override dataset_preprocess."
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


_EVAL_ROWS = needs(lambda e: e.eval_examples, "no evaluation rows were given", after=examples)


@check("train-eval-overlap", "no evaluation row is trained on", _EVAL_ROWS)
def train_eval_overlap(evidence: Evidence) -> Iterator[Finding]:
    evaluated = evidence.eval_examples or []
    shared = overlap(evidence.examples, evaluated)
    if shared:
        yield warning(
            "Evaluation rows are also trained on.",
            f"{shared} of {len(evaluated)} evaluation examples are in the training rows.",
            "Take them out of one of the two; a score on trained rows says nothing.",
        )


_KNOWN = needs(lambda e: e.gold.works or not e.gold.tried, "no answer is known that earns", after=examples)


@check("leaks-ground-truth-prompt", "the prompt does not tell the answer", _KNOWN)
def leaks_ground_truth_prompt(evidence: Evidence) -> Iterator[Finding]:
    found = [(evidence.prompt(each), truth) for each in evidence.examples[:200] if (truth := evidence.truth(each))]
    if len({truth for _, truth in found}) < 2:
        return
    own = [probe_answers.mentions(prompt, truth) for prompt, truth in found]
    # A prompt that lists all labels mentions the other rows' answers just as often.
    pairs = [(prompt, other, truth) for (prompt, truth), (_, other) in zip(found, found[1:] + found[:1], strict=True)]
    others = [probe_answers.mentions(prompt, other) for prompt, other, truth in pairs if other != truth]
    if not others or fmean(own) - fmean(others) < 0.5:
        return
    prompt, truth = found[own.index(True)]
    labelled = fmean(probe_answers.labelled(prompt, truth) for prompt, truth in found)
    yield (error if labelled >= 0.5 else warning)(
        "The prompt contains the ground truth.",
        f"in {sum(own)} of {len(own)} rows; for example {truth!r} in {prompt[-400:]!r}",
        "Take the answer out of the prompt. If the prompt holds a text to find it in, all is well.",
    )
