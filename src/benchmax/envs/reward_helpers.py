"""Small functions for reward code: the text of a transcript, and scores of texts.

Where a function takes a `completion` it takes a string, a list of messages, or the `Transcript` a reward
receives; of a transcript it reads only what the model produced, never the assistant turns of the prompt.
All of them take time in proportion to the text, also for adversarial text.
"""

from __future__ import annotations

import html
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Any, NamedTuple

from benchmax.envs.types import Transcript

_TOOL_CALL = "<tool_call>"
_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE | re.ASCII)
# Ends at the next tag, whichever it is: linear for a text of opening tags alone.
_ANSWER_BLOCK = re.compile(r"<answer>((?:[^<]|<(?!/?answer>))*+)</answer>", re.IGNORECASE)
SOURCE_MARK = re.compile(r"\[source:([^\[\]]++)\]", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+])?(?:(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]*+)?|\.[0-9]++)"
    r"(?:[eE][-+]?[0-9]{1,4}(?![0-9]))?(?:/[0-9]++)?"
)
_DIGIT = re.compile(r"[0-9]")
_LEADING = "\"'“”‘’«»([{*_`,;:!?"
_TRAILING = "\"'“”‘’«»)]}*_`,;:!?.…"
_ARTICLES = ("a", "an", "the")

OVERLAP_FLOOR = 0.25
MATCHER_WORK = 100_000
"""Character pairs SequenceMatcher may visit in one look at the texts before words are compared instead."""
MATCHER_ROUNDS = 30
"""Looks at the whole of the texts; what people write takes fewer than ten."""
NUMBER_CHARS = 400
"""The longest text read as one number."""


# --- text of a transcript ---


def content_text(content: Any) -> str:
    """The text of a message's content: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "".join(part for part in parts if isinstance(part, str))


def last_user_text(messages: Any) -> str:
    """What was asked: the last user turn of the prompt, given as messages or a transcript; "" when there is none."""
    turns: Any = messages.prompt if isinstance(messages, Transcript) else messages
    if not isinstance(turns, list | tuple):
        return ""
    users = [turn for turn in turns if isinstance(turn, Mapping) and turn.get("role") == "user"]
    return content_text(users[-1].get("content")) if users else ""


def extract_completion_text(completion: Any) -> str:
    """The model's text: every non-blank assistant turn, joined with newlines."""
    if isinstance(completion, str):
        return completion
    texts = (content_text(message.get("content")) for message in _turns(completion) if _is_assistant(message))
    return "\n".join(text for text in texts if text.strip())


def extract_answer_block(text: str) -> str:
    """The first `<answer>` block, or the whole text when there is none."""
    opened = next((tag for tag in _ANSWER_TAG.finditer(text) if not tag[1]), None)
    if opened is None:
        return text.strip()
    closed = next((tag for tag in _ANSWER_TAG.finditer(text, opened.end()) if tag[1]), None)
    return text[opened.end() : closed.start()].strip() if closed else text.strip()


def extract_last_answer_block(text: str) -> str:
    """The last closed `<answer>` block, or "" when there is none: a model must use the tags to score."""
    answer, start = "", None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            answer, start = text[start : tag.start()].strip(), None
    return answer


def only_answer(completion: Any, most_chars: int) -> str | None:
    """What stands in `<answer>` tags in the last turn with text; None when nothing does, when it is longer than
    `most_chars`, or when there are different answers: listing many earns nothing."""
    found = {html.unescape(block).strip() for block in _ANSWER_BLOCK.findall(last_text(completion))}
    answer = found.pop() if len(found) == 1 else ""
    return answer if 0 < len(answer) <= most_chars else None


def last_text(completion: Any) -> str:
    """What the model said last: the text of its last turn that has any, or ""."""
    if isinstance(completion, str):
        return completion
    texts = (extract_completion_text([turn]) for turn in reversed(_turns(completion)))
    return next((text for text in texts if text), "")


# --- comparing with a known answer ---


def accepted_answers(truth: Any) -> list[str]:
    """The answers that a truth accepts: each of a list, or the one that it is."""
    return list(map(str, truth)) if isinstance(truth, list | tuple) else [str(truth)]


def exact_match(prediction: Any, gold: Any) -> float:
    """1.0 when both say the same, ignoring case, spacing, outer punctuation and a leading article.

    `gold` may be a list of accepted answers.
    """
    said = _words(prediction)
    return float(bool(said) and any(said == _words(one) for one in _golds(gold)))


def contains_answer(text: Any, gold: Any) -> float:
    """1.0 when a gold answer occurs in the text as whole words, normalised as in `exact_match`."""
    said = f" {' '.join(_words(text))} "
    answers = (" ".join(_words(one)) for one in _golds(gold))
    return float(any(answer and f" {answer} " in said for answer in answers))


def f1_score(prediction: Any, gold: Any) -> float:
    """The harmonic mean of word precision and recall; the best over several golds."""
    said = Counter(_words(prediction))
    return max((f1_of_words(said, Counter(_words(one))) for one in _golds(gold)), default=0.0)


def numeric_match(prediction: Any, gold: Any, tolerance: float = 1e-6) -> float:
    """1.0 when the last number of the prediction equals that of the gold, within a relative or absolute tolerance.

    Reads `1,234.5`, `-3e2` and `1/2`; signs such as % and $ are not read.
    """
    said = _last_number(prediction)
    wanted = (_last_number(one) for one in _golds(gold))
    return float(
        said is not None
        and any(one is not None and math.isclose(said, one, rel_tol=tolerance, abs_tol=tolerance) for one in wanted)
    )


def clip01(value: Any) -> float:
    """The value as a float within [0, 1]; 0 when it is not a number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return 0.0 if math.isnan(number) else min(1.0, max(0.0, number))


# --- retrieval and tools ---


def percent_of_text_a_in_text_b(text_a: str, text_b: str) -> float:
    """How much of text a is found in text b, in order, as a share of a's length.

    Texts too long or too intricate to align character by character are compared by runs of four words.
    """
    if not text_a:
        return 0.0
    try:
        if _matcher_work(text_a, text_b) <= MATCHER_WORK:
            blocks = _Matcher(text_a, text_b).get_matching_blocks()
            return sum(block.size for block in blocks) / len(text_a)
    except _TooCostly:
        pass
    return _share_of_word_runs(text_a.split(), text_b.split())


def overlap_reward(completion: Any, ground_truth: Any, **kwargs: Any) -> float:
    """How much of the reference was retrieved: its share found in tool and user turns, 0 below a quarter.

    The reference is the text of `reference_chunks` when given, else the ground truth. A turn with four or
    more `<tool_call>` tags earns nothing: it floods the context instead of searching.
    """
    turns = _turns(completion)
    said = [content_text(message.get("content")) for message in turns if _is_assistant(message)]
    if any(text.count(_TOOL_CALL) >= 4 for text in said):
        return 0.0
    chunks = [content_text(chunk.get("content")) for chunk in _mappings(kwargs.get("reference_chunks"))]
    reference = "\n".join(chunks) if chunks else content_text(ground_truth)
    found = "\n".join(content_text(message.get("content")) for message in turns if not _is_assistant(message))
    share = percent_of_text_a_in_text_b(reference, found)
    return share if share >= OVERLAP_FLOOR else 0.0


def count_search_calls(completion: Any) -> int:
    """Tool calls the model made, written as `<tool_call>` text or structured."""
    if isinstance(completion, str):
        return completion.count(_TOOL_CALL)
    return sum(_calls_in(message) for message in _turns(completion) if _is_assistant(message))


def search_within_budget(calls: int, max_calls: int) -> bool:
    return calls <= max_calls


class CitationScore(NamedTuple):
    precision: float
    recall: float


def citation_score(
    completion: Any,
    reference_chunks: Sequence[Mapping[str, Any]] | None,
    *,
    source_field: str | Sequence[str] = "source_id",
    canonicalize: Callable[[str], str] | None = None,
) -> CitationScore:
    """Precision and recall of the `[Source: id]` marks against the sources of the reference chunks.

    With several source fields, a chunk's source is the first field it has.
    """
    canonical = canonicalize or str.strip
    fields = [source_field] if isinstance(source_field, str) else list(source_field)
    cited = {
        canonical(mark.strip()) for mark in SOURCE_MARK.findall(extract_completion_text(completion)) if mark.strip()
    }
    sources = (_source(chunk, fields) for chunk in _mappings(reference_chunks))
    wanted = {canonical(source) for source in sources if source}
    if not cited or not wanted:
        return CitationScore(0.0, 0.0)
    hits = len(cited & wanted)
    return CitationScore(hits / len(cited), hits / len(wanted))


def tool_call_efficiency(
    completion: Any,
    *,
    correctness_raw: float = 1.0,
    reference_chunk_count: int = 0,
    max_calls: int = 10,
    decay_rate: float = 0.2,
    ranges: Sequence[tuple[int, int | None, float]] | None = None,
) -> float:
    """Reward few tool calls; a wrong answer earns nothing.

    With `ranges` of (least, most or None, score) the first range that holds the number of calls decides. Else
    correctness decays with each call beyond the number of reference chunks plus two; beyond `max_calls` it is 0.
    """
    calls = count_search_calls(completion)
    if correctness_raw <= 0:
        return 0.0
    if ranges is not None:
        fitting = (score for least, most, score in ranges if calls >= least and (most is None or calls <= most))
        return float(next(fitting, 0.0))
    if calls > max_calls:
        return 0.0
    return correctness_raw * math.exp(-decay_rate * max(0, calls - (reference_chunk_count + 2)))


# --- inside ---


def _turns(completion: Any) -> list[Mapping[str, Any]]:
    """The messages to look at."""
    return _mappings(completion.completion if isinstance(completion, Transcript) else completion)


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _is_assistant(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"


def _calls_in(message: Mapping[str, Any]) -> int:
    # Some servers return a call both as text and parsed: it is one call.
    structured = message.get("tool_calls")
    written = content_text(message.get("content")).count(_TOOL_CALL)
    return max(written, len(structured) if isinstance(structured, list | tuple) else 0)


def _source(chunk: Mapping[str, Any], fields: Iterable[str]) -> str:
    metadata = chunk.get("metadata")
    values = metadata if isinstance(metadata, Mapping) else {}
    found = next((values[field] for field in fields if values.get(field) is not None), "")
    return str(found).strip()


def _golds(gold: Any) -> list[Any]:
    return list(gold) if isinstance(gold, list | tuple | set | frozenset) else [gold]


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    text = unicodedata.normalize("NFKC", str(value)).casefold()
    # A word of punctuation alone is kept: "a + b" is not "a b", and an answer may be ")".
    words = [word.lstrip(_LEADING).rstrip(_TRAILING) or word for word in text.split()]
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words


def f1_of_words(said: Counter[str], wanted: Counter[str]) -> float:
    """The harmonic mean of precision and recall of words that were counted."""
    shared = (said & wanted).total()
    return 2 * shared / (said.total() + wanted.total()) if shared else 0.0


def _last_number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value) if abs(value) <= sys.float_info.max else None
    if value is None:
        return None
    text = str(value)
    if (end := _DIGIT.search(text[::-1])) is None:
        return None
    stop = len(text) - end.start()
    # Only the tail can hold the last number; a longer one is noise, and slow to convert.
    *_, last = _NUMBER.findall(text[max(0, stop - NUMBER_CHARS) : stop].replace("−", "-"))
    if len(last) >= NUMBER_CHARS:
        return None
    top, _, bottom = last.replace(",", "").partition("/")
    divisor = float(bottom) if bottom else 1.0
    return float(top) / divisor if divisor else None


def _matcher_work(text_a: str, text_b: str) -> int:
    """Pairs of equal characters SequenceMatcher would visit; it skips those common in a long b."""
    if len(text_a) + len(text_b) > MATCHER_WORK:
        return MATCHER_WORK + 1
    in_b = _looked_at(text_b)
    return sum(count * in_b.get(char, 0) for char, count in Counter(text_a).items())


def _looked_at(text_b: str) -> dict[str, int]:
    """How often each character occurs in b, less those that SequenceMatcher skips there."""
    common = len(text_b) // 100 + 1 if len(text_b) >= 200 else len(text_b)
    return {char: count for char, count in Counter(text_b).items() if count <= common}


class _TooCostly(Exception):
    pass


class _Matcher(SequenceMatcher[str]):
    """Scans the text once for each piece that both share, and raises when that takes too long."""

    def __init__(self, text_a: str, text_b: str) -> None:
        super().__init__(None, text_a, text_b)
        in_b = _looked_at(text_b)
        self._work = list(accumulate((1 + in_b.get(char, 0) for char in text_a), initial=0))
        self._left = MATCHER_ROUNDS * self._work[-1]

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._left -= self._work[-1 if ahi is None else ahi] - self._work[alo]
        if self._left < 0:
            raise _TooCostly
        return super().find_longest_match(alo, ahi, blo, bhi)


def _share_of_word_runs(words_a: list[str], words_b: list[str]) -> float:
    run = max(1, min(4, len(words_a)))
    runs_b = set(zip(*(words_b[offset:] for offset in range(run)), strict=False))
    covered = [False] * len(words_a)
    for start in range(len(words_a) - run + 1):
        if tuple(words_a[start : start + run]) in runs_b:
            covered[start : start + run] = [True] * run
    size = sum(map(len, words_a))
    return sum(len(word) for word, found in zip(words_a, covered, strict=True) if found) / size if size else 0.0
