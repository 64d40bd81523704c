"""Is there an answer that earns, and is it the one that the rows and the prompt tell?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmax.doctor import probe_answers
from benchmax.doctor.evidence import Evidence, total_of
from benchmax.doctor.findings import Finding, error, warning
from benchmax.doctor.gold.answer_formats import PLAIN, SLOT, THOUGHT, Form, asked_forms, is_unmentioned
from benchmax.doctor.gold.answer_search import OWN_GOLD
from benchmax.doctor.gold.delimiters import is_alike
from benchmax.doctor.gold.ground_truths import TRUTH_KEYS, is_likely, is_short, likely_columns, truths
from benchmax.doctor.gold.value_formats import spellings
from benchmax.doctor.probe_player import PlayedAnswer
from benchmax.doctor.quoting import beside_gold, earned, quote
from benchmax.doctor.registry import check, gold, needs, scored, searched
from benchmax.doctor.tool_arguments import arguments_for
from benchmax.envs.types import Example
from benchmax.metrics import pays_more

_SHOWN = re.compile(
    r"(?:\bform(?:at)?(?: of)?|\blike|\bsuch as|\be\.g\.,?|\bfor example,?)[\s:`'\"“]+([$€£]?\d[\d.,]*\d\s?[%€]?)",
    re.IGNORECASE,
)
"""A number that a prompt shows as an example."""
_MARKS = re.compile(r"<\w|```|\\boxed|####")
REFUSED_SHARE = 0.34
"""The share of the gold reward below which an answer counts as refused."""
_CALLS = " and the tool calls it takes in gold_tool_calls, or a whole conversation in demonstrate"


@check("nothing-earns", "some answer earns more than nonsense", searched)
def nothing_earns(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.nothing_earns or any((answer.total or 0.0) > 0 for answer in evidence.scored):
        return  # that every answer earns the same is reported by constant-reward
    if not evidence.gold_text_known:
        return  # reported by gold-unknown
    unknown = evidence.calls_unknown
    example = evidence.sample[0]
    columns = ", ".join(example.get("task") or {}) or "none"
    asked = len(evidence.gold.asked)
    forms = f"in {asked} form{'s' * (asked > 1)} that the prompt asks for and in the usual ones"
    forms = forms if asked else "in the usual forms; the prompt asks for none"
    yield (warning if evidence.needs_more_than_text else error)(
        "No answer earns anything: the reward is broken, or a good answer looks different from all that were tried.",
        f"{evidence.gold.tried + len(evidence.answers)} answers were tried, made from the columns {columns}, as text, "
        f"JSON and code, {forms}",
        f"Write down a perfect answer in gold_completion{_CALLS * unknown}; "
        "if that earns nothing either, correct compute_reward.",
        code=gold_stub(evidence, example) + (calls_stub(evidence, example) if unknown else ""),
    )


def gold_stub(evidence: Evidence, example: Example) -> str:
    """`gold_completion` ready to paste, with the row's columns and the form the prompt asks for."""
    task = example.get("task") or {}
    likely = (name.partition(".")[0] for name, _ in likely_columns(example))
    column = next((name for name in likely if name in task), next(iter(task), "answer"))
    form = next(iter(_told_forms(evidence)), PLAIN)
    template = form.template if not form.as_json_key else f'{{"{form.as_json_key}": "{SLOT}"}}'
    written = template.replace("{", "{{").replace("}", "}}").replace(SLOT, "{truth}")
    return (
        "@classmethod\n"
        "def gold_completion(cls, example):\n"
        f"    truth = example['task'][{column!r}]  # or another column: {', '.join(task) or 'there are none'}\n"
        f"    return f{written!r}\n"
    )


def _told_forms(evidence: Evidence) -> list[Form]:
    """The forms that the model is surely told: in a row's own text, labels, keys and quotes are mostly those of its
    data (`Question: …`, `{"id": 3}`), and an example of an answer is no form around one."""
    told = asked_forms(evidence.system_prompt)
    shown = [each.text for each in truths(evidence.sample[0])]
    return [
        form
        for form in evidence.gold.asked
        if _MARKS.match(form.template) or (form in told and not form.vague and not is_alike(form.write("1"), shown))
    ]


def calls_stub(evidence: Evidence, example: Example) -> str:
    """`gold_tool_calls` ready to paste, imports and all, with the first tool and arguments that fit its schema."""
    tool = evidence.tools[0]
    return (
        "@classmethod\n"
        "def gold_tool_calls(cls, example):\n"
        "    import json\n"
        "    from benchmax import ToolCall\n"
        f"    # The columns of example['task'] are {', '.join(example.get('task') or {}) or 'none'}.\n"
        f"    return [ToolCall({tool.name!r}, json.dumps({arguments_for(tool)!r}))]\n"
    )


_DEMONSTRATED = needs(
    lambda e: e.demonstrated or e.demonstrate_error, "there is no demonstrate, or siblings are compared", after=scored
)


@check("demonstrate-earns-nothing", "demonstrate shows a solution that earns", _DEMONSTRATED)
def demonstrate_earns_nothing(evidence: Evidence) -> Iterator[Finding]:
    answers = evidence.demonstrated
    low = [each for each in answers if each.total is None or not pays_more(each.total, _floor_on(evidence, each))]
    if evidence.demonstrate_error:
        fix = "Correct demonstrate; tools are called as a model calls them."
        yield warning("demonstrate failed.", evidence.demonstrate_error, fix)
    elif low:
        yield warning(
            f"demonstrate earns no more than nonsense on {len(low)} of {len(answers)} rows.",
            f"its last turn {quote(low[0].text)} earned {earned(low[0])}",
            "Let it end with the answer that compute_reward rewards: a warm start shows only solutions that earn.",
        )


@check("gold-scores-low", "the gold answer scores high", gold)
def gold_scores_low(evidence: Evidence) -> Iterator[Finding]:
    answers = evidence.best("gold")
    low = [answer for answer in answers if not pays_more(answer.total or 0.0, _floor_on(evidence, answer))]
    if evidence.erratic or evidence.nothing_earns or evidence.gold_doubtful:
        return
    yield from _only_uncleaned(evidence)
    yield from _other_column(evidence)
    if not answers or not low:
        return
    best = evidence.gold.best.name if evidence.gold.best else ""
    paid = [answer for answer in answers if answer not in low]
    common = probe_answers.set_apart(*([evidence.truth(each.example) or "" for each in some] for some in (low, paid)))
    yield (error if len(low) * 2 >= len(answers) and not evidence.needs_more_than_text else warning)(
        f"The gold answer earns no more than nonsense on {len(low)} of {len(answers)} rows.",
        f"{quote(low[0].text)} ({best}) earned {earned(low[0])}; nonsense earns {_floor_on(evidence, low[0]):g}"
        + f"; their answers, and no others, {common}" * bool(common),
        "Check that compute_reward reads the form the system prompt asks for. "
        "If a good answer looks different, override gold_completion to show one.",
    )


def _only_uncleaned(evidence: Evidence) -> Iterator[Finding]:
    """The truth earns with what is invisible in it, and not as a model writes it."""
    clean = evidence.best("clean-gold")
    clean = [each for each in clean if pays_more(evidence.gold_for([each]) or 0.0, _floor_on(evidence, each))]
    lost = [answer for answer in clean if not pays_more(total_of(answer), _floor_on(evidence, answer))]
    if clean and len(lost) == len(clean):
        truth = evidence.truth(lost[0].example) or ""
        yield error(
            "The right answer earns only with characters that cannot be seen.",
            f"the truth is {truth[:60]!a}; {quote(lost[0].text)} earned {earned(lost[0])}",
            "Clean the rows, and strip what is compared on both sides: no model writes these characters.",
        )


def _other_column(evidence: Evidence) -> Iterator[Finding]:
    """A short value in a column named like the answer earns nothing, and one in a column named otherwise does."""
    found, best = evidence.gold, evidence.gold.best
    task = evidence.sample[0].get("task") or {}
    named = next((name for name in TRUTH_KEYS if is_short(task.get(name))), None)
    paid = next((name for name in task if best and best.label.partition(" ")[0] == name), None)
    if named is None or paid is None or not found.works or is_likely(paid) or not is_short(task[paid]):
        return
    own = [reward for way, reward in found.earned.items() if named in way.label.split()]
    if own and not pays_more(max(own), found.floor):
        most = max(found.earned.values())
        yield warning(
            f"The column {named!r} earns nothing, and {paid!r} does.",
            f"{quote(str(task[named]))} earned {max(own):g} in every form, {quote(str(task[paid]))} up to {most:g}",
            f"Compare with task[{named!r}] if that is the answer; if it is not, give the columns names that say so.",
        )


@check("unasked-form", "the form that earns is the one the prompt asks for", gold)
def unasked_form(evidence: Evidence) -> Iterator[Finding]:
    yield from _punished_thought(evidence)
    found, best = evidence.gold, evidence.gold.best
    forms = _told_forms(evidence)
    if best is None or best.label == OWN_GOLD or not found.works or evidence.gold_doubtful:
        return
    if not forms or best.form in found.asked:
        yield from _unmentioned_form(evidence)
        yield from _refused_spelling(evidence)
        return
    if best.form.template.startswith(THOUGHT):
        return  # the form that was asked for, after the thought that was asked for
    if not all(map(found.is_bare, evidence.sample)):
        return  # a joined list or a table has a form of its own, which the prompt may well ask for
    asked = [way for way in found.ways if way.label == best.label and way.form in forms]
    if asked and not pays_more(max(found.earned[way] for way in asked), found.floor):
        yield warning(
            "The form that the prompt asks for does not earn.",
            f"{best.name} earns {found.earned[best]:g}; {asked[0].name} earns {found.earned[asked[0]]:g}",
            "Let prompt and reward agree on the form; a model that follows the prompt learns nothing here.",
        )


def _unmentioned_form(evidence: Evidence) -> Iterator[Finding]:
    """Nothing earns without marks that the prompt does not mention."""
    found, best = evidence.gold, evidence.gold.best
    mentioned = (not is_unmentioned(best.form, evidence.prompt(example)) for example in evidence.sample) if best else ()
    if best is None or any(mentioned) or not evidence.system_prompt.strip():
        return  # that there is no system prompt is reported by system-prompt-missing
    plain = [paid for way, paid in found.earned.items() if way.label == best.label and way.form is PLAIN]
    if plain and not pays_more(max(plain), found.floor):
        yield warning(
            "The form that earns is not told to the model.",
            f"{best.name} earns {found.earned[best]:g}, the answer without it {max(plain):g}; the prompt says nothing",
            "Ask for it in system_prompt, best with an example: what no sample contains cannot be learned.",
        )


def _refused_spelling(evidence: Evidence) -> Iterator[Finding]:
    """The prompt shows how to write a number, and the reward reads it only in another way."""
    found, best, shown = evidence.gold, evidence.gold.best, _SHOWN.search(evidence.system_prompt)
    if best is None or shown is None or best.form is not PLAIN or best.label not in (evidence.sample[0]["task"] or {}):
        return
    value = (evidence.sample[0]["task"] or {})[best.label]
    asked = [f"{best.label} as {how}" for how, _ in spellings(value, shown[1])]
    tried = [way for way in found.ways if way.label in asked and way.form is PLAIN]
    if tried and not pays_more(max(found.earned[way] for way in tried), found.floor):
        text, other = (quote(found.text(evidence.sample[0], way) or "") for way in (tried[0], best))
        yield warning(
            "A number that is written as the prompt shows it does not earn.",
            f"the prompt shows {quote(shown[1])}; {text} earns nothing, {other} does",
            "Take away what the prompt asks for (signs, commas, units) before the number is read.",
        )


def _punished_thought(evidence: Evidence) -> Iterator[Finding]:
    """The prompt asks for reasoning, and the answer earns nothing after it."""
    refused = (evidence.share("worked-gold") or 0.0) < REFUSED_SHARE
    if evidence.best("worked-gold") and evidence.gold_works and not evidence.grouped and refused:
        yield warning(
            "The reasoning that the prompt asks for costs the reward.",
            beside_gold(evidence, "worked-gold"),
            "Read the answer at the end of the text or in a form of its own, not the first number or the whole text.",
        )


@check("gold-unknown", "a gold answer is known", scored)
def gold_unknown(evidence: Evidence) -> Iterator[Finding]:
    if evidence.gold.error:
        hook = evidence.gold.raised_in
        yield warning(f"{hook} raised.", evidence.gold.error, f"Correct {hook}.")
    elif not evidence.gold_text_known or evidence.gold_doubtful:
        yield warning(
            "No gold answer is known, so half of the probes have no measure.",
            _best_guess(evidence) if evidence.gold_doubtful else "the task has no column that could be the answer",
            "Override gold_completion(cls, example) to return a good answer.",
            code=gold_stub(evidence, evidence.sample[0]),
        )


def _best_guess(evidence: Evidence) -> str:
    guess, best = evidence.best("gold")[0], evidence.gold.best
    made = f"{quote(guess.text)} ({best.name if best else ''})"
    return f"the best answer that could be made from the columns, {made}, earned {earned(guess)}"


def _floor_on(evidence: Evidence, gold_answer: PlayedAnswer) -> float:
    """What answers without content earn on the same example, or on average where they were not tried."""
    empty = evidence.of("nothing", "garbage")
    here = [total_of(each) for each in empty if each.example["id"] == gold_answer.example["id"]]
    return max(here, default=evidence.floor)
