"""Are the rows usable, enough, and different from one another?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from benchmax import limits
from benchmax.doctor import probe_answers
from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import Finding, error, warning
from benchmax.doctor.registry import check, examples
from benchmax.doctor.words import first_of
from benchmax.envs.datasets.load import overlap
from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import Example


@check("preprocess-fails", "dataset_preprocess turns every row into an example")
def preprocess_fails(evidence: Evidence) -> Iterator[Finding]:
    bad = [issue for issue in evidence.row_issues if issue.severity == "error"]
    if evidence.data_error and not bad:
        yield error("There are no usable rows.", evidence.data_error, "Give rows with a prompt (or messages) column.")
    if bad:
        count = evidence.report.errors if evidence.report else len(bad)
        shown = first_of(bad, 3, count)
        yield error(f"{count} row problems.", shown, "Correct the rows, or override dataset_preprocess.")
    if evidence.eval_error:
        yield error("The evaluation rows cannot be used.", evidence.eval_error, "Correct them like the training rows.")


@check("preprocess-unstable-id", "an example's id is the same every time", examples)
def preprocess_unstable_id(evidence: Evidence) -> Iterator[Finding]:
    if evidence.unstable_rows:
        yield error(
            "The same row becomes a different example each time.",
            first_of(evidence.unstable_rows, 3),
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


@check("train-eval-overlap", "no evaluation row is trained on", lambda evidence: _no_eval(evidence))
def train_eval_overlap(evidence: Evidence) -> Iterator[Finding]:
    evaluated = evidence.eval_examples or []
    shared = overlap(evidence.examples, evaluated)
    if shared:
        yield warning(
            "Evaluation rows are also trained on.",
            f"{shared} of {len(evaluated)} evaluation examples are in the training rows.",
            "Take them out of one of the two; a score on trained rows says nothing.",
        )


def _no_eval(evidence: Evidence) -> str | None:
    return examples(evidence) or (None if evidence.eval_examples else "no evaluation rows were given")


def _known_truth(evidence: Evidence) -> str | None:
    known = evidence.gold.works or not evidence.gold.tried
    return examples(evidence) or (None if known else "no answer is known that earns")


@check("leaks-ground-truth-prompt", "the prompt does not tell the answer", _known_truth)
def leaks_ground_truth_prompt(evidence: Evidence) -> Iterator[Finding]:
    truths = [(example, truth) for example in evidence.examples[:200] if (truth := evidence.truth(example))]
    if len({truth for _, truth in truths}) < 2:
        return
    prompts = [_prompt(evidence, example) for example, _ in truths]
    own = [probe_answers.mentions(prompt, truth) for prompt, (_, truth) in zip(prompts, truths, strict=True)]
    # A prompt that lists all labels mentions the other rows' answers just as often.
    others = [
        probe_answers.mentions(prompt, truths[(index + 1) % len(truths)][1])
        for index, prompt in enumerate(prompts)
        if truths[(index + 1) % len(truths)][1] != truths[index][1]
    ]
    if not others or fmean(own) - fmean(others) < 0.5:
        return
    told = next(index for index, mentioned in enumerate(own) if mentioned)
    labelled = fmean(probe_answers.labelled(prompt, truth) for prompt, (_, truth) in zip(prompts, truths, strict=True))
    say = error if labelled >= 0.5 else warning
    yield say(
        "The prompt holds the ground truth.",
        f"in {sum(own)} of {len(own)} rows; for example {truths[told][1]!r} in {prompts[told][-400:]!r}",
        "Take the answer out of the prompt. If the prompt holds a text to find it in, all is well.",
    )


def _prompt(evidence: Evidence, example: Example) -> str:
    turns = "\n".join(content_text(message.get("content")) for message in example["prompt_messages"])
    return f"{evidence.system_prompt}\n{turns}"
