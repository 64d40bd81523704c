"""The search for solutions before a run: it is said, it is bounded, and what a dose did is told as it is."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import pytest

from benchmax.doctor.learning_signal import Signal
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import load_examples
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.files.jsonl import read_jsonl
from benchmax.trainer.config import build_config
from benchmax.trainer.display.view import PlainView
from benchmax.trainer.start import train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny
from benchmax.trainer.warm_start import warm_start
from benchmax.trainer.warm_start.hints import hinted_solutions
from benchmax.trainer.warm_start.supervised_refresh import nothing_to_teach
from benchmax.trainer.warm_start.warm_start import describe_dose


class CopyEnv(BaseEnv):
    """Say the letter again, in tags: a fresh model never does, and the doctor does."""

    system_prompt = "Put the letter in <answer> tags."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.search(r"<answer>(.*?)</answer>", extract_completion_text(messages))
        return {"same": float(bool(found) and found[1] == task["letter"])}


ROWS = list(load_examples([{"prompt": f"{letter}{n}?", "letter": letter} for n in range(4) for letter in "abcd"]))


def begin(folder: Path) -> tuple[str, dict[str, Any]]:
    """One step on rows that a fresh model cannot solve: what a pipe shows of it, and the record of its warm start."""
    model = make_tiny(folder / "model", context=512)
    config = build_config({
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "rollouts": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 4, "max_turns": 1},
        "limits": {"steps": 1, "seconds": 600},
        "sft": {"doses": 1},
        "output": {"dir": str(folder), "name": "run"},
    })  # fmt: skip
    stream = io.StringIO()
    asyncio.run(train(config, task=Task(CopyEnv, ROWS, []), on_event=PlainView(1, stream)))
    (record,) = [line for line in read_jsonl(folder / "run" / "events.jsonl") if line["kind"] == "warm_start"]
    return stream.getvalue(), record


def test_a_search_for_solutions_is_said_before_it_ends(tmp_path: Path) -> None:
    shown, record = begin(tmp_path)
    assert record["how"] == "gold"
    asked, told = shown.index("can it learn?"), shown.rindex("looking for solutions: 0 found, 0 of 16 rows tried")
    assert asked < told < shown.index("warm start, after dose 1")


def test_a_search_takes_no_more_than_its_share_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "SEARCH_SHARE", 0.0)
    shown, record = begin(tmp_path)
    assert record["how"] == "none"
    assert "No solution was found in 0 s" in record["why"]
    assert "asking the model with the solution in sight: 0 found, 0 of 16 rows tried" in shown


async def test_no_more_hints_are_given_when_the_time_is_over() -> None:
    class Trainer:
        config = build_config({})
        sampler = None  # asking it would raise

    assert await hinted_solutions(None, Trainer(), ROWS, until=0.0) == []  # type: ignore[arg-type]


def test_a_long_search_is_told_now_and_then() -> None:
    stream = io.StringIO()
    view = PlainView(5, stream)
    for rows in range(9):
        view("solving", {"how": "gold", "of": 9, "rows": rows, "found": rows})
    assert stream.getvalue() == "looking for solutions: 0 found, 0 of 9 rows tried\n"
    view._solving_printed -= 60
    view("solving", {"how": "hint", "of": 9, "rows": 8, "found": 4})
    assert "in sight: 4 found, 8 of 9 rows tried" in stream.getvalue()
    view("solving", {"how": "hint", "of": 9, "rows": 9, "found": 5})
    assert stream.getvalue().endswith("in sight: 5 found, 9 of 9 rows tried\n"), "the outcome, however soon it comes"


# What a dose did


def signal(reward: float | None, spread: float = 0.0) -> Signal:
    advice = "Show it solutions first: warm_start = auto does, with those the doctor found."
    forecast = "No group in 4 had signal: GRPO will not move it."
    return Signal(4, 8, reward=reward, best=reward, spread=spread, gold=1.0, forecast=forecast, advice=advice)


def test_prompts_that_every_sample_solves_are_not_without_hope() -> None:
    solved = signal(0.75)
    describe_dose(solved, 1.0)
    assert solved.forecast == "Its samples earn 0.75 of 1.00: little is left to learn on these rows."
    assert solved.advice == ""


def test_a_dose_that_was_not_enough_asks_for_more_not_for_a_warm_start() -> None:
    lost = signal(0.0)
    describe_dose(lost, 1.0)
    assert (lost.forecast, lost.advice) == ("None of 4 groups had signal: it needs more solutions.", "")


def test_what_is_missing_besides_solutions_stays_said() -> None:
    unscored = signal(None)
    unscored.forecast, unscored.advice = "No sample got a reward: nothing can be learned.", "Put the reward right."
    whole = Signal(8, 8, reward=0.4, parts={"a": signal(0.8), "b": unscored})
    describe_dose(whole, 1.0)
    assert whole.forecast.startswith("a: Its samples earn 0.80 of 1.00")
    assert whole.advice == "b: Put the reward right."


# Nothing to teach


def test_which_rows_were_measured_and_how_is_said() -> None:
    sure = nothing_to_teach(1.0, 6, sampled=0.95, enough=0.9)
    assert "greedy answers to 6 training rows earn 1.00 already: what is missing is more rows" in sure


def test_samples_that_say_otherwise_are_not_passed_over() -> None:
    said = nothing_to_teach(1.0, 6, sampled=0.6, enough=0.9)
    assert "more rows" not in said
    assert said.endswith("though samples of the last step earned 0.60.")
