"""Poems that spell a word: what counts as one, what does not, and poems compared by a judge."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from benchmax.doctor import examine_sync
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.telestich.telestich_env import LEVELS, TelestichEnv, make_rows, poem
from benchmax.envs.types import ChatMessage, Example
from benchmax.errors import DatasetError, UsageError
from benchmax.models.scripted import ScriptedModel
from benchmax.rewards import Judge
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost

SUN = {"word": "sun", "theme": "the sea", "letters": "first"}


async def paid(env: TelestichEnv, text: str, task: dict[str, Any] | None = None) -> dict[str, Any]:
    return dict(await env.compute_reward("one", [{"role": "assistant", "content": text}], task or SUN))


def total(rewards: dict[str, Any]) -> float:
    return float(sum(rewards[name] * weight for name, weight in TelestichEnv.reward_weights.items()))


def examples(level: str, rows: int) -> list[Example]:
    return list(load_examples(make_rows(level, rows=rows), TelestichEnv))


@pytest.mark.parametrize("level", LEVELS)
async def test_demonstrations_spell_every_word(level: str) -> None:
    env = TelestichEnv()
    for example in examples(level, 200):
        rewards = await paid(env, str(env.demonstrate(example)), example.get("task"))
        assert rewards == {"spelled": 1.0, "words": 1.0}, env.demonstrate(example)


async def test_a_letter_that_ends_no_word_has_no_demonstration() -> None:
    env = TelestichEnv()
    rows = [{"word": "quiz", "theme": "rain", "letters": letters} for letters in ("first", "last", "both")]
    first, *others = load_examples(rows, TelestichEnv)
    assert (await paid(env, str(env.demonstrate(first)), first.get("task")))["spelled"] == 1.0
    assert [env.demonstrate(each) for each in others] == [None, None]


def test_rows_are_made_by_seed_and_differ() -> None:
    assert make_rows("double", seed=1) == make_rows("double", seed=1) != make_rows("double", seed=2)
    rows = make_rows("acrostic")
    assert len({(row["word"], row["theme"]) for row in rows}) == len(rows) == 1_000
    with pytest.raises(UsageError, match="Choose one of: acrostic"):
        TelestichEnv.load_dataset("sonnet")
    with pytest.raises(DatasetError, match="plain letters"):
        load_examples([{"word": "s n", "letters": "last"}], TelestichEnv)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("Soft rain falls\nUnder the old bridge\nNight is near", 1.0),
        ("soft rain falls,\n\n  under the old bridge!\n“Night is near.”", 1.0),
        ("Soft rain falls\nOver the old bridge\nNight is near", 1 / 3),
        ("Soft rain falls\nUnder the old bridge\nNight is near\nAnd dark", 0.0),
        ("S\nU\nN", 0.0),
        ("s s s\nu u u\nn n n", 0.0),
        ("sxq zzk\nuvv qqz\nnnb kkl", 0.0),
        ("Sun sun\nUnder under\nNight night", 0.0),
        ("sun", 0.0),
        ("", 0.0),
    ],
)
async def test_what_spells_the_word(text: str, spelled: float) -> None:
    assert (await paid(TelestichEnv(), text))["spelled"] == pytest.approx(spelled)


async def test_last_letters_and_both() -> None:
    env = TelestichEnv()
    last = {**SUN, "letters": "last"}
    text = "A field of grass\nThe evening menu\nOver the moon"
    assert (await paid(env, text, last))["spelled"] == 1.0
    assert (await paid(env, text, {**SUN, "letters": "both"}))["spelled"] == 0.0
    both = "Soft green grass\nUnder a bayou\nNear the moon"
    assert (await paid(env, both, {**SUN, "letters": "both"}))["spelled"] == 1.0


async def test_words_that_are_said_again_and_again_pay_less() -> None:
    env = TelestichEnv()
    good = await paid(env, "Soft rain falls\nUnder the old bridge\nNight is near")
    dull = await paid(env, "Soft rain rain rain\nUnder rain rain rain\nNight rain rain rain")
    assert dull["words"] < 0.5 < good["words"] == 1.0


async def test_cheats_and_random_words_earn_little() -> None:
    env, draw = TelestichEnv(), random.Random(0)
    made = examples("acrostic", 60)
    words = " ".join(poem(row["word"], row["theme"], "both") for row in make_rows("double", rows=20)).split()

    def nonsense() -> str:
        return "\n".join(" ".join(draw.choices(words, k=3)) for _ in range(draw.randrange(1, 6)))

    cheats = {
        "nothing": lambda example: "",
        "echo": lambda example: str(example["prompt_messages"][-1]["content"]),
        "the shown one": lambda example: str(example["prompt_messages"][1]["content"]),
        "letters": lambda example: "\n".join((example.get("task") or {})["word"]),
        "one word a line": lambda example: "\n".join(f"{c}un" for c in (example.get("task") or {})["word"]),
        "spam": lambda example: "\n".join(words[:200]),
        "random": lambda example: nonsense(),
    }
    for name, cheat in cheats.items():
        earned = [total(await paid(env, cheat(example), example.get("task"))) for example in made]
        assert sum(earned) / len(earned) < (0.1 if name == "random" else 0.2), name


async def test_a_judge_compares_the_poems_of_a_group() -> None:
    def judge(messages: Sequence[ChatMessage]) -> str:
        asked = str(messages[-1]["content"])
        first, second = (
            re.search(rf'name="{place} response" id="(\w+)">\n(.*?)\n</data', asked, re.DOTALL)
            for place in ("first", "second")
        )
        assert first is not None
        assert second is not None
        winner = "first" if len(first[2]) > len(second[2]) else "second"
        return json.dumps({"reasoning": "longer", "winner": winner})

    poems = iter(
        ["Soft rain falls\nUnder trees\nNight comes", "Soft rain falls on the sea\nUnder trees\nNight comes", "No poem"]
    )
    (example,) = load_examples([SUN], TelestichEnv)
    async with EnvHost(lambda: TelestichEnv(judge=Judge(ScriptedModel(judge, name="judge")))) as host:
        assert host.overrides("compute_group_reward")
        group = await run_group(host, example, ScriptedModel(lambda messages: next(poems)), samples=range(3))
    assert [rollout.rewards["preferred"] for rollout in group] == [0.0, 1.0, 0.0]
    assert group[1].reward == pytest.approx(1.0 + 0.5)
    async with EnvHost(TelestichEnv) as host:
        assert not host.overrides("compute_group_reward")


def test_the_doctor_finds_nothing() -> None:
    for level in LEVELS:
        diagnosis = examine_sync(TelestichEnv, rows=make_rows(level, rows=200), examples=4)
        assert not diagnosis.errors, str(diagnosis)
        assert not diagnosis.warnings, str(diagnosis)
