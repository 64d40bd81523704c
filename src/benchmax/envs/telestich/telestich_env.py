"""Write a poem whose first letters, last letters, or both, spell a word: open-ended, and yet checked by rule.

    env = TelestichEnv()                                                # rules alone
    env = TelestichEnv(judge_model="…", judge_base_url="http://…/v1")   # and poems compared with one another

`spelled` is 1 when the letters are right, `words` says what the words are like. With a judge, the poems of a group are
compared in pairs, and `preferred` is the share of matches that a poem wins: it orders them as Elo ratings do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmax import extras
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.required_columns import require_columns, require_task
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.telestich.poems import Poem
from benchmax.envs.telestich.words import FIRST, LAST, LONG, MIDDLE, SHORT, THEMES
from benchmax.envs.types import Example, Messages, RewardValue
from benchmax.errors import UsageError

ROWS = 1_000
PREFERRED = 0.5
"""How much the judge's preference counts."""
CRITERION = "which is the better poem on its theme: images, rhythm, and lines that belong together"


@dataclass(frozen=True, slots=True)
class Level:
    """What is asked for."""

    letters: str
    """`first`, `last` or `both`."""
    fewest: int
    most: int
    """Letters of the word."""


LEVELS = {
    "acrostic": Level("first", 3, 3),
    "telestich": Level("last", 3, 4),
    "double": Level("both", 3, 5),
    "long": Level("last", 5, 7),
}
DEFAULT_LEVEL = "acrostic"
_ASKED = {"first": "first letters", "last": "last letters", "both": "first letters and the last letters"}
_EXAMPLE_WORD = "hat"


class TelestichEnv(BaseEnv):
    """Poems whose first or last letters spell a word.

    One word a row: `{"word": "sun", "theme": "the sea", "letters": "last"}`.
    """

    system_prompt = "Write the poem alone, one line for each letter."
    recommended_max_turns = 1
    PRIMARY_REWARD_KEY = "spelled"
    reward_weights: Mapping[str, float] = {"spelled": 0.9, "words": 0.1}  # type: ignore[misc]

    def __init__(
        self, judge: Any = None, judge_model: str | None = None, judge_base_url: str | None = None, **kwargs: Any
    ) -> None:
        """`judge` is a `benchmax.Judge`, or the name and address of a model make one; without, rules alone score."""
        extras.require("The telestich environment", "envs")
        super().__init__(**kwargs)
        if judge is None and judge_model:
            judge = import_module("benchmax.rewards.judge").Judge(name=judge_model, base_url=judge_base_url)
        if isinstance(judge, str):
            raise UsageError(f"judge is a benchmax.Judge, not a text. Name a model with judge_model: {judge!r}.")
        self.judge = judge
        if judge is not None:
            self.compute_group_reward = self._compared  # type: ignore[method-assign]
            self.reward_weights = {**type(self).reward_weights, "preferred": PREFERRED}

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        require_columns(example, "word")
        word, letters = str(example["word"]).lower(), example.get("letters", "last")
        if letters not in _ASKED or not (word.isascii() and word.isalpha()):
            raise UsageError(
                f"A row asks for {letters!r} of {word!r}. Give a word of plain letters, and `letters` as one of "
                f"{', '.join(_ASKED)}."
            )
        theme = str(example.get("theme") or "anything")
        return make_example(
            prompt_messages=[
                {"role": "user", "content": _question(_EXAMPLE_WORD, "the sea", letters)},
                {"role": "assistant", "content": poem(_EXAMPLE_WORD, "the sea", letters)},
                {"role": "user", "content": _question(word, theme, letters)},
            ],
            task={"word": word, "theme": theme, "letters": letters},
        )

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[list[dict[str, str]], None]:
        """A level, made here: acrostic, telestich, double or long."""
        if dataset_name not in LEVELS:
            raise UsageError(f"There is no level {dataset_name!r}. Choose one of: {', '.join(LEVELS)}.")
        return make_rows(dataset_name, **kwargs), None

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        task = dict(require_task(task, "word", "theme", "letters"))
        written = Poem.read(extract_completion_text(messages))
        first, last = task["letters"] in ("first", "both"), task["letters"] in ("last", "both")
        spelled = written.spelled(task["word"], first=first, last=last)
        return {"spelled": spelled, "words": written.words() * written.length(len(task["word"]))}

    async def _compared(
        self, rollout_ids: list[str], messages_list: list[Messages], tasks: list[dict[str, Any] | None]
    ) -> Sequence[Mapping[str, RewardValue]]:
        """How often a judge prefers each poem to its siblings; a poem that does not spell the word takes no part."""
        compare = import_module("benchmax.rewards.tournament").tournament
        texts = [extract_completion_text(messages) for messages in messages_list]
        scored = [
            await self.compute_reward(rollout, messages, task)
            for rollout, messages, task in zip(rollout_ids, messages_list, tasks, strict=True)
        ]
        entered = [at for at, each in enumerate(scored) if each["spelled"] == 1.0]
        found: list[dict[str, RewardValue]] = [{"preferred": 0.0} for _ in texts]
        if len(entered) < 2:
            return found
        task = tasks[entered[0]] or {}
        question = _question(task["word"], task["theme"], task["letters"])
        shares = await compare(self.judge, question, [texts[at] for at in entered], criterion=CRITERION)
        for at, share in zip(entered, shares, strict=True):
            found[at] = {"preferred": share}
        return found

    # Solutions

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        """A poem by rule; None for a word with a letter, q, that no word here ends with."""
        task = example.get("task")
        if not task or (task["letters"] != "first" and not LAST.keys() >= set(task["word"])):
            return None
        return poem(task["word"], task["theme"], task["letters"])

    def demonstrate(self, example: Example) -> str | None:
        return self.gold_completion(example)

    async def shutdown(self) -> None:
        if self.judge is not None:
            await self.judge.aclose()


def _question(word: str, theme: str, letters: str) -> str:
    return f"Write a poem of {len(word)} lines about {theme}. The {_ASKED[letters]} of the lines spell {word.upper()}."


def poem(word: str, theme: str, letters: str) -> str:
    """A plain poem that spells the word, the same for the same theme."""
    draw = random.Random(f"{word} {theme} {letters}")
    middles = draw.sample(MIDDLE, len(MIDDLE))
    firsts, lasts = _drawn(FIRST, draw), _drawn(LAST, draw)
    lines = []
    for at, letter in enumerate(word.lower()):
        first = firsts[letter].pop() if letters != "last" else firsts[draw.choice("abcdefghlmnoprstw")].pop(0)
        line = f"{first} {middles[at % len(middles)]}"
        if letters != "first":
            line += f" by the {lasts[letter].pop()}"
        lines.append(line.capitalize())
        firsts, lasts = (_refilled(kept, source, draw) for kept, source in ((firsts, FIRST), (lasts, LAST)))
    return "\n".join(lines)


def _drawn(source: Mapping[str, str], draw: random.Random) -> dict[str, list[str]]:
    return {letter: _shuffled(words, draw) for letter, words in source.items()}


def _shuffled(words: str, draw: random.Random) -> list[str]:
    return draw.sample(words.split(), len(words.split()))


def _refilled(kept: dict[str, list[str]], source: Mapping[str, str], draw: random.Random) -> dict[str, list[str]]:
    return {letter: words or _shuffled(source[letter], draw) for letter, words in kept.items()}


def make_rows(level: str, *, rows: int | None = None, seed: int = 0) -> list[dict[str, str]]:
    """Different words and themes of a level, the same for the same seed."""
    wanted = LEVELS[level]
    words = [word for word in (*SHORT, *LONG) if wanted.fewest <= len(word) <= wanted.most and word != _EXAMPLE_WORD]
    pairs = [(word, theme) for word in dict.fromkeys(words) for theme in THEMES]
    random.Random(f"{level} {seed}").shuffle(pairs)
    chosen = pairs[: ROWS if rows is None else rows]
    return [{"word": word, "theme": theme, "letters": wanted.letters} for word, theme in chosen]
