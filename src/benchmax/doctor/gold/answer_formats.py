"""The forms in which an answer may have to be written: those the prompt asks for, and the usual ones.

A form is a text with a slot for the truth. Its fixed parts also show whether another answer has this form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmax.doctor.gold import delimiters
from benchmax.envs.loading import json_or_text

SLOT = "\0"
MOST_ASKED = 24
"""Forms read out of one prompt."""
MOST_THOUGHT = 6
"""Of these, tried after a line of thought."""
LONGEST = 160
"""Characters of a template; a longer one is an explanation."""
LANGUAGES = ("python", "json", "sql", "javascript", "bash", "yaml", "xml", "html", "csv")

_TAG = re.compile(r"(?<!<)<([A-Za-z][\w-]{0,30})>(?!>)")
QUOTED = re.compile(
    r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)|«([^»\n]+)»|„([^“”\n]+)[“”]|「([^」\n]+)」"
)
_AFTER_COLON = re.compile(r":[ \t]+(\S[^\n]{1,120}?)(?:[.!]?$|[.!](?=\s))", re.MULTILINE)
_IN_PARENTHESES = re.compile(r"\((?:\w(?:,\s*\w)*|\.\.\.|…)\)")
_CLAUSE = re.compile(r"[,;] | \(")
_LABEL = re.compile(r"(?<![\w<])([^\W\d_a-z][\w-]*(?: [\w-]+){0,2})([:：])")
"""A word that does not begin with a small Latin letter; scripts other than that may have no capitals."""
_NOTATION = re.compile(r"\b(?:JSON|YAML|XML|CSV|SQL|[Ee]xamples?)$")
"""What ends in this introduces a text, and is no label of it."""
_PROSE = re.compile(r"[^\W\d_]{2}")
"""What follows a colon that introduces a text, where it is no place for an answer."""
_FENCED = re.compile(
    r"```([a-z][\w+#-]{0,15})|\b(?!code\b|fenced\b|the\b|one\b|single\b)([a-z+#]{2,12}) (?:code )?(?:block|fence)"
)
_ASSIGNED = re.compile(r"\b([A-Za-z_]{2,24})=(?!=)")
_JSON_KEY = re.compile(r"[{,]\s*\"([\w -]{1,40})\"\s*:")
_NAMED_KEYS = re.compile(r"\b(?:key|field|propert|attribute)(?:s|y|ies)?\b:?([^.\n]{1,200})", re.IGNORECASE)
_QUOTED_NAME = re.compile(r"[\"'`](\w{1,40})[\"'`]")
_FIRST_NAMES = re.compile(r"\w{1,40}(?:(?:,\s*(?:and\s+)?|\s+and\s+)\w{1,40})*")
_THINKS = re.compile(r"\b(?:steps?|think|reason|explain|work (?:it )?out|show your)", re.IGNORECASE)
_REASONS = re.compile(
    r"\bstep[ -]by[ -]step\b|\breasoning (?:first|before)|\bshow your (?:work|reasoning)", re.IGNORECASE
)
_BARE = re.compile(r"\bonly\b|\balone\b|\bnothing else\b|\bno other\b|\bJSON\b", re.IGNORECASE)
THOUGHT = "Let me think about it."
_SLOTS = (
    re.compile(r"<[^<>/]{1,40}>"),
    re.compile(r"\{[^{}\"]{0,40}\}"),
    re.compile(r"\[[^\[\]]{0,40}\]"),
    re.compile(r"\.\.\.|…|_{2,}"),
    re.compile(r"\b[A-Z]{2,}\b|\b[XYN]\b"),
    re.compile(r"-?\d+(?:[.,]\d+)*"),
    re.compile(
        r"\b(?:your |the )?(?:final )?(?:answer|number|result|value|code|word|name|letter|option)\b(?!\s*[:=])",
        re.IGNORECASE,
    ),
    re.compile(r"\b[A-Z]\b"),
)
"""What marks the place of the answer in a template, the surest first."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write an answer down."""

    name: str
    template: str = SLOT
    as_json_key: str = ""
    """The truth is the value of this key of a JSON object."""
    others: tuple[tuple[str, Any], ...] = ()
    """All keys of that object, each with something to say there."""
    bare: bool = False
    """The value stands without quotes, where it is none but text."""
    vague: bool = field(default=False, compare=False)
    """Whether what the prompt says may be something else than a form."""
    mention: str = field(default="", compare=False)
    """A pattern for the words of a prompt that mention a usual form."""

    def write(self, truth: str) -> str:
        if self.as_json_key:
            table = dict(self.others) | {self.as_json_key: json_or_text(truth) if self.bare else truth}
            return json.dumps(table, ensure_ascii=False)
        return self.template.replace(SLOT, truth)

    def holds(self, text: str) -> bool | None:
        """Whether a text has this form; None where the form has no fixed part."""
        if self.as_json_key:
            return f'"{self.as_json_key}"' in text
        before, _, after = self.template.partition(SLOT)
        before = before.rpartition(THOUGHT)[2]  # a model thinks in its own words
        before, after = before.strip()[-LONGEST:], after.strip()[:LONGEST]
        if not before and not after:
            return None
        at = text.find(before)
        return at >= 0 and text.find(after, at + len(before)) >= 0


PLAIN = Form("plain")
USUAL = (
    PLAIN,
    Form("in <answer> tags", f"<answer>{SLOT}</answer>", mention=r"<answer|\btags?\b|\bXML\b"),
    Form("in \\boxed{}", f"\\boxed{{{SLOT}}}", mention=r"boxed"),
    Form("after 'Answer:'", f"Answer: {SLOT}", mention=r"answer\W{0,3}[:=]"),
    Form("as JSON", as_json_key="answer", mention=r"json|[\"'`]answer|\bkeys?\b"),
    Form("after ####", f"#### {SLOT}", mention=r"##|\bhash"),
    Form("as a sentence", f"The answer is {SLOT}."),
    Form("in a code block", f"```\n{SLOT}\n```", mention=r"```|\bcode\b|\bblock|\bfence"),
    Form("in a python block", f"```python\n{SLOT}\n```", mention=r"```|\bcode\b|\bblock|\bfence|python"),
)


def is_unmentioned(form: Form, prompt: str) -> bool:
    """Whether a form has marks of its own that this prompt does not mention."""
    return bool(form.mention) and re.search(form.mention, prompt, re.IGNORECASE) is None


def tags(prompt: str) -> list[str]:
    """The tags a prompt mentions."""
    return list(dict.fromkeys(_TAG.findall(prompt)))[:6]


def asked_forms(prompt: str, values: Iterable[str] = ()) -> list[Form]:
    """The forms a prompt asks for, the clearest first; `values` are texts of which the prompt may show an example."""
    found: dict[str, Form] = {}
    for form in (
        *_between(delimiters.around_values(prompt, values)),
        *_tagged(prompt),
        *_blocks(prompt),
        *_marks(prompt),
        *_templates(prompt),
        *_labels(prompt),
        *_keys(prompt),
    ):
        found.setdefault(form.write("?"), form)
    return list(found.values())[:MOST_ASKED]


def all_forms(prompt: str, values: Iterable[str] = ()) -> list[Form]:
    """The forms the prompt asks for, then the usual ones."""
    asked = asked_forms(prompt, values)
    found = {form.write("?"): form for form in reversed((*asked, *USUAL, *_after_a_thought(asked, prompt)))}
    return list(reversed(found.values()))


def _tagged(prompt: str) -> Iterator[Form]:
    names = tags(prompt)
    if not names:
        return
    *before, last = names
    if before:
        thought = "".join(f"<{tag}>{THOUGHT}</{tag}>\n" for tag in before)
        yield Form("in the prompt's tags", f"{thought}<{last}>{SLOT}</{last}>")
    for tag in reversed(names):
        yield Form(f"in <{tag}> tags", f"<{tag}>{SLOT}</{tag}>")


def _blocks(prompt: str) -> Iterator[Form]:
    asked = prompt.lower()
    named = list(dict.fromkeys("".join(match) for match in _FENCED.findall(asked)))[:3]
    if not named and ("```" in prompt or "code block" in asked or "fence" in asked):
        named = [language for language in LANGUAGES if re.search(rf"\b{language}\b", asked)]
        yield Form("in a code block", f"```\n{SLOT}\n```")
    for language in named:
        yield Form(f"in a {language} block", f"```{language}\n{SLOT}\n```")


def _between(pairs: Iterable[delimiters.Pair]) -> Iterator[Form]:
    for opening, closing in pairs:
        yield Form(f"between {opening} and {closing}", f"{opening}{SLOT}{closing}")


def _marks(prompt: str) -> Iterator[Form]:
    if "boxed" in prompt:
        yield Form("in \\boxed{}", f"\\boxed{{{SLOT}}}")
    if "####" in prompt:
        yield Form("after ####", f"#### {SLOT}")
    yield from _between(delimiters.pairs(prompt))
    if _IN_PARENTHESES.search(prompt):
        yield Form("in parentheses", f"({SLOT})")


def _templates(prompt: str) -> Iterator[Form]:
    """Phrases in quotes or after a colon with a place for the answer."""
    quoted = ["".join(match) for match in QUOTED.findall(prompt)]
    for phrase in (*quoted, *_AFTER_COLON.findall(prompt)):
        # Nobody asks for a question as the answer: one in quotes is the task's own.
        for slot in _SLOTS if len(phrase) <= LONGEST and "?" not in phrase else ():
            places = list(slot.finditer(phrase))
            if places:
                template = phrase[: _first_of_list(phrase, places)] + SLOT + phrase[places[-1].end() :]
                clause = next(part for part in _CLAUSE.split(template) if SLOT in part).strip()
                full = [f"{template}."] if not template.endswith((".", "!", "?")) and " " in template else []
                for each in dict.fromkeys((clause, template, *full)):
                    if each.strip() != SLOT and each.count("{") == each.count("}"):
                        yield Form(f"as '{each.replace(SLOT, '…')}'", each)
                break


def _first_of_list(phrase: str, places: list[re.Match[str]]) -> int:
    """Where the last place begins, or the list of such places which it ends: `A, C` in `Answer: A, C`."""
    begin, joint = places[-1].start(), ""
    for before in reversed(places[:-1]):
        between = phrase[before.end() : begin]
        if not re.fullmatch(r"\s*[,;>|]\s*|\s+", between) or between != (joint or between):
            break
        begin, joint = before.start(), between
    return begin


def _labels(prompt: str) -> Iterator[Form]:
    for name in list(dict.fromkeys(_ASSIGNED.findall(prompt)))[:3]:
        yield Form(f"after '{name}='", f"{name}={SLOT}")
    labels = {found[0]: found for found in reversed([*_LABEL.finditer(prompt)]) if not _NOTATION.search(found[1])}
    for label, found in list(reversed(labels.items()))[:6]:
        rest = prompt[found.end() :].lstrip(" \t")
        prose = _PROSE.match(rest) is not None and not any(slot.match(rest) for slot in _SLOTS)
        yield Form(f"after '{label}'", f"{label} {SLOT}", vague=prose)


def _keys(prompt: str) -> Iterator[Form]:
    names = list(dict.fromkeys([*_JSON_KEY.findall(prompt), *(_named(prompt) if "JSON" in prompt.upper() else ())]))[:4]
    for name in names:
        yield Form(f"as JSON, {name}", as_json_key=name)
        yield Form(f"as JSON, {name} without quotes", f'{{"{name}": {SLOT}}}')
    others = tuple((name, _shown(prompt, name)) for name in names)
    for name, value in others if len(others) > 1 else ():
        yield Form(f"as JSON, {name} among others", as_json_key=name, others=others, bare=value != THOUGHT)


def _shown(prompt: str, name: str) -> Any:
    """A value of the kind that the prompt shows for this key: a number, a switch, or a word."""
    found = re.search(rf"\"{re.escape(name)}\"\s*:\s*(?:(-?\d)|(true|false))", prompt)
    return THOUGHT if found is None else 1 if found[1] else True


def _named(prompt: str) -> Iterator[str]:
    """The keys that a sentence names, in quotes or one after the other."""
    for said in _NAMED_KEYS.findall(prompt):
        found = _QUOTED_NAME.findall(said)
        first = _FIRST_NAMES.match(said.strip())
        yield from found or (re.findall(r"\w+", first[0]) if first else ())


def asks_for_thought(prompt: str) -> bool:
    """Whether the prompt wants reasoning before the answer, in no form of its own and not silently."""
    return bool(_REASONS.search(prompt)) and not _BARE.search(prompt) and not tags(prompt)


def _after_a_thought(forms: list[Form], prompt: str) -> Iterator[Form]:
    """Where the prompt asks for reasoning, the answer as its last line."""
    for form in (PLAIN, *forms[:MOST_THOUGHT]) if _THINKS.search(prompt) else ():
        if not form.as_json_key and not form.template.startswith("<"):
            yield Form(f"{form.name}, after a thought", f"{THOUGHT}\n{form.template}")
