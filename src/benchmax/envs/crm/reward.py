"""How an answer is scored: the two metrics of CRMArena.

exact_match   which of the asked-for tokens were given: the intersection of both sets over their union
fuzzy_match   the words of the answer against those of the truth: the harmonic mean of precision and recall

The answer is the last closed `<answer>` block that the model wrote, whatever follows it. Without one nothing is paid.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.envs.required_columns import require_task
from benchmax.envs.reward_helpers import extract_completion_text, extract_last_answer_block, f1_of_words

_BETWEEN_TOKENS = re.compile(r"[,|\s]+")
_ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(completion: Any, ground_truth: Sequence[str], metric: str) -> float:
    """What an answer is worth, from 0 to 1; a metric that does not exist is worth nothing."""
    text = extract_completion_text(completion)
    if not _has_answer(text.lower()):
        return 0.0
    answer = extract_last_answer_block(text)
    if metric == "exact_match":
        return exact_match(answer, ground_truth)
    return fuzzy_match(answer, ground_truth[0] if ground_truth else "") if metric == "fuzzy_match" else 0.0


def _has_answer(text: str) -> bool:
    """Whether there is a closed block, be it an empty one."""
    opened = text.find("<answer>")
    return opened >= 0 and text.find("</answer>", opened) >= 0


def score_task(completion: Any, task: Mapping[str, Any]) -> float:
    """The score of a completion for an example's task."""
    require_task(task, "ground_truth", "reward_metric")
    return score(completion, task["ground_truth"], task["reward_metric"])


def match(completion: Any, **task: Any) -> float:
    """The reward function of the workdirs."""
    return score_task(completion, task)


def exact_match(answer: str, truths: Sequence[str]) -> float:
    """Intersection over union of the tokens, without regard to capitals and order."""
    said, wanted = _tokens(answer), _tokens(" ".join(truths))
    if not said or not wanted:
        return float(said == wanted)
    return len(said & wanted) / len(said | wanted)


def fuzzy_match(answer: str, truth: str) -> float:
    """F1 of the words, without capitals, punctuation and articles."""
    said, wanted = Counter(_words(answer)), Counter(_words(truth))
    if not said or not wanted:
        return float(said == wanted)
    return f1_of_words(said, wanted)


def _tokens(text: str) -> set[str]:
    return {token for token in _BETWEEN_TOKENS.split(text.lower()) if token}


def _words(text: str) -> list[str]:
    return [word for word in text.lower().translate(_NO_PUNCTUATION).split() if word not in _ARTICLES]
