"""The forms in which an answer may have to be written: those the prompt asks for, and the usual ones.

A form is a text with a slot for the truth. Its fixed parts also show whether another answer has this form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

SLOT = "\0"
MOST_ASKED = 24
"""Forms read out of one prompt."""
LONGEST = 160
"""Characters of a template; a longer one is an explanation."""
LANGUAGES = ("python", "json", "sql", "javascript", "bash", "yaml", "xml", "html", "csv")

_TAG = re.compile(r"<([A-Za-z][\w-]{0,30})>")
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_AFTER_COLON = re.compile(r":[ \t]+(\S[^\n]{1,120}?)(?:[.!]?$|[.!](?=\s))", re.MULTILINE)
_BRACKETS = ("[[ ]]", "{{ }}", "<< >>", "(( ))", "** **", "$$ $$", "[ ]", "| |", "$ $")
_CLAUSE = re.compile(r"[,;] | \(")
_LABEL = re.compile(r"(?<![\w<])([A-Z][\w-]*(?: [\w-]+){0,2}):")
_ASSIGNED = re.compile(r"\b([A-Za-z_]{2,24})=(?!=)")
_JSON_KEY = re.compile(r"[{,]\s*\"([\w -]{1,40})\"\s*:")
_NAMED_KEY = re.compile(r"\b(?:key|field)s?\s+[\"'`]?(\w{1,40})[\"'`]?", re.IGNORECASE)
_SLOTS = (
    re.compile(r"<[^<>/]{1,40}>"),
    re.compile(r"\{[^{}\"]{0,40}\}"),
    re.compile(r"\[[^\[\]]{0,40}\]"),
    re.compile(r"\.\.\.|…|_{2,}"),
    re.compile(r"\b[A-Z]{2,}\b|\b[XYN]\b"),
    re.compile(r"-?\d+(?:[.,]\d+)*"),
    re.compile(
        r"\b(?:your |the )?(?:final )?(?:answer|number|result|value|code|word|name|letter|option)\b", re.IGNORECASE
    ),
)
"""What marks the place of the answer in a template, the surest first."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write an answer down."""

    name: str
    template: str = SLOT
    as_json_key: str = ""
    """The truth is the value of this key of a JSON object."""

    def write(self, truth: str) -> str:
        if self.as_json_key:
            return json.dumps({self.as_json_key: truth}, ensure_ascii=False)
        return self.template.replace(SLOT, truth)

    def holds(self, text: str) -> bool | None:
        """Whether a text has this form; None where the form has no fixed part."""
        if self.as_json_key:
            return f'"{self.as_json_key}"' in text
        before, _, after = self.template.partition(SLOT)
        before, after = before.strip()[-LONGEST:], after.strip()[:LONGEST]
        if not before and not after:
            return None
        at = text.find(before)
        return at >= 0 and text.find(after, at + len(before)) >= 0


PLAIN = Form("plain")
USUAL = (
    PLAIN,
    Form("in <answer> tags", f"<answer>{SLOT}</answer>"),
    Form("in \\boxed{}", f"\\boxed{{{SLOT}}}"),
    Form("after 'Answer:'", f"Answer: {SLOT}"),
    Form("as JSON", as_json_key="answer"),
    Form("after ####", f"#### {SLOT}"),
    Form("as a sentence", f"The answer is {SLOT}."),
    Form("in a code block", f"```\n{SLOT}\n```"),
    Form("in a python block", f"```python\n{SLOT}\n```"),
)


def tags(prompt: str) -> list[str]:
    """The tags a prompt mentions."""
    return list(dict.fromkeys(_TAG.findall(prompt)))[:6]


def asked_forms(prompt: str) -> list[Form]:
    """The forms a prompt asks for, the clearest first."""
    found: dict[str, Form] = {}
    for form in (
        *_tagged(prompt),
        *_blocks(prompt),
        *_marks(prompt),
        *_templates(prompt),
        *_labels(prompt),
        *_keys(prompt),
    ):
        found.setdefault(form.write("?"), form)
    return list(found.values())[:MOST_ASKED]


def all_forms(prompt: str) -> list[Form]:
    """The forms the prompt asks for, then the usual ones."""
    found = {form.write("?"): form for form in reversed((*asked_forms(prompt), *USUAL))}
    return list(reversed(found.values()))


def _tagged(prompt: str) -> Iterator[Form]:
    names = tags(prompt)
    if not names:
        return
    *before, last = names
    if before:
        thought = "".join(f"<{tag}>Let me think about it.</{tag}>\n" for tag in before)
        yield Form("in the prompt's tags", f"{thought}<{last}>{SLOT}</{last}>")
    for tag in reversed(names):
        yield Form(f"in <{tag}> tags", f"<{tag}>{SLOT}</{tag}>")


def _blocks(prompt: str) -> Iterator[Form]:
    asked = prompt.lower()
    named = [language for language in LANGUAGES if re.search(rf"```{language}\b", asked)]
    if not named and ("```" in prompt or "code block" in asked or "fence" in asked):
        named = [language for language in LANGUAGES if re.search(rf"\b{language}\b", asked)]
        yield Form("in a code block", f"```\n{SLOT}\n```")
    for language in named:
        yield Form(f"in a {language} block", f"```{language}\n{SLOT}\n```")


def _marks(prompt: str) -> Iterator[Form]:
    if "boxed" in prompt:
        yield Form("in \\boxed{}", f"\\boxed{{{SLOT}}}")
    if "####" in prompt:
        yield Form("after ####", f"#### {SLOT}")
    for opening, closing in map(str.split, _BRACKETS):
        if re.search(rf"{re.escape(opening)}[^\n]{{0,60}}?{re.escape(closing)}", prompt):
            yield Form(f"between {opening} and {closing}", f"{opening}{SLOT}{closing}")


def _templates(prompt: str) -> Iterator[Form]:
    """Phrases in quotes or after a colon with a place for the answer."""
    quoted = ["".join(match) for match in _QUOTED.findall(prompt)]
    for phrase in (*quoted, *_AFTER_COLON.findall(prompt)):
        for slot in _SLOTS if len(phrase) <= LONGEST else ():
            places = list(slot.finditer(phrase))
            if places:
                template = phrase[: places[-1].start()] + SLOT + phrase[places[-1].end() :]
                clause = next(part for part in _CLAUSE.split(template) if SLOT in part).strip()
                full = [f"{template}."] if not template.endswith((".", "!", "?")) and " " in template else []
                for each in dict.fromkeys((clause, template, *full)):
                    if each.strip() != SLOT:
                        yield Form(f"as '{each.replace(SLOT, '…')}'", each)
                break


def _labels(prompt: str) -> Iterator[Form]:
    for name in list(dict.fromkeys(_ASSIGNED.findall(prompt)))[:3]:
        yield Form(f"after '{name}='", f"{name}={SLOT}")
    for label in list(dict.fromkeys(_LABEL.findall(prompt)))[:6]:
        yield Form(f"after '{label}:'", f"{label}: {SLOT}")


def _keys(prompt: str) -> Iterator[Form]:
    names = dict.fromkeys(
        [*_JSON_KEY.findall(prompt), *(_NAMED_KEY.findall(prompt) if "JSON" in prompt.upper() else ())]
    )
    for name in list(names)[:4]:
        yield Form(f"as JSON, {name}", as_json_key=name)
