"""Puzzles of reasoning-gym: every task by name, made the same everywhere, scored without executing anything."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.catalogue import is_named, members
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import find_rows, load_env_class, own_rows
from benchmax.envs.reasoning import ReasoningEnv
from benchmax.envs.reasoning.puzzle_process import checked_expression
from benchmax.envs.reasoning.reasoning_env import LEVELS
from benchmax.envs.reasoning.tasks import MIXED, NAMES
from benchmax.envs.types import Example, Messages
from benchmax.errors import DatasetError, NotFoundError, UsageError
from benchmax.evaluation.evaluate import evaluate
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.host import EnvHost

FILE = Path(__file__).parents[3] / "benchmarks" / "reasoning_tasks.py"
SAMPLE = ("leg_counting", "graph_color", "arc_1d", "knights_knaves", "spiral_matrix", "propositional_logic")
"""Tasks with exact answers, with many right answers, with tuples, with sets, that used to be evaluated."""
RAN = "left by an answer"


def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("reasoning_tasks", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reasoning_tasks"] = module
    spec.loader.exec_module(module)
    return module


def rows_of(task: str, name: str = "", **options: Any) -> list[dict[str, Any]]:
    rows, _ = load_env_class(f"reasoning/{task}").load_dataset(name, **options)
    return list(rows)


def said(text: str) -> Messages:
    return [{"role": "assistant", "content": text}]


async def paid(env: BaseEnv, example: Example, text: str) -> float:
    rewards = await env.compute_reward("one", said(text), example.get("task"))
    assert isinstance(rewards["score"], float)
    return rewards["score"]


# Names


def test_the_names_are_those_of_the_package() -> None:
    code = (
        "import sys, os; out = os.dup(1); os.dup2(2, 1); from reasoning_gym.factory import DATASETS; "
        "os.write(out, ' '.join(DATASETS).encode())"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert {*NAMES, "composite"} == set(done.stdout.split())
    assert len(NAMES) >= 100


def test_every_task_has_a_class_that_others_find_by_its_name() -> None:
    classes = {load_env_class(name) for name in members("reasoning")}
    assert len(classes) == len(NAMES)
    found = load_env_class("reasoning/leg_counting")
    assert found is load_env_class("benchmax.envs.reasoning.tasks.LegCounting")
    assert found.__name__ == "LegCounting"
    assert b"LegCounting" in dump_bundle(found).pickled
    assert is_named("reasoning/leg_counting,arithmetic=2")
    assert not is_named("reasoning/leg_counting,main.py")
    with pytest.raises(NotFoundError, match="Did you mean 'leg_counting'"):
        load_env_class("reasoning/leg_count")


# Rows


def test_rows_are_the_same_in_another_process_and_differ_by_seed() -> None:
    code = (
        "import json; from benchmax.envs.loading import load_env_class; "
        "print(json.dumps(load_env_class('reasoning/word_ladder').load_dataset(rows=8, seed=3)[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == json.dumps(rows_of("word_ladder", rows=8, seed=3))
    assert rows_of("word_ladder", rows=8, seed=4) != rows_of("word_ladder", rows=8, seed=3)


def test_levels_and_settings_are_chosen_by_the_name_of_the_rows() -> None:
    easy, hard = rows_of("chain_sum", "easy", rows=30), rows_of("chain_sum", "hard", rows=30)
    assert max(len(row["question"]) for row in easy) < max(len(row["question"]) for row in hard)
    few = find_rows(load_env_class("reasoning/leg_counting"), "hard:max_animals=4:max_instances=2")
    assert len(few) > 100
    (row, *_) = ReasoningEnv.load_dataset("leg_counting:medium", rows=2)[0]
    assert row["task"] == "leg_counting"
    with pytest.raises(UsageError, match="has no setting 'wheels'"):
        rows_of("leg_counting", "hard:wheels=3", rows=2)
    for level in ("hard", "default"):
        with pytest.raises(UsageError, match="max_animals takes int, such as 10, and not 'x'"):
            rows_of("leg_counting", f"{level}:max_animals=x", rows=2)
    with pytest.raises(UsageError, match="max_animals=0: max_animals must be"):
        rows_of("leg_counting", "hard:max_animals=0", rows=2)
    with pytest.raises(UsageError, match="neither a level"):
        rows_of("leg_counting", "chain_sum", rows=2)


def test_the_plain_environment_mixes_short_tasks_evenly() -> None:
    rows = list(own_rows(ReasoningEnv))
    assert [row["task"] for row in rows[: len(MIXED)]] == list(MIXED)
    made = load_examples(rows, ReasoningEnv).examples
    assert len({example["id"] for example in made}) == len(rows) >= 350
    assert [row["task"] for row in ReasoningEnv.load_dataset(rows=11)[0]] == [*MIXED, *MIXED[:3]]
    longest = max(sum(len(str(m["content"])) for m in each["prompt_messages"]) for each in made)
    assert longest < 1_500


def test_no_answer_is_so_frequent_that_guessing_it_pays() -> None:
    rows = rows_of("isomorphic_strings", rows=60)
    yes = sum(row["answer"] == "True" for row in rows)
    assert 25 <= yes <= 35


def test_a_task_with_few_easy_puzzles_takes_others() -> None:
    assert len(rows_of("coin_flip", "easy", rows=80)) < 64 <= len(rows_of("coin_flip", rows=80))


# Scores


async def test_known_answers_score_one_and_others_do_not() -> None:
    looked = benchmark()
    for task in SAMPLE:
        rows = rows_of(task, rows=40)
        known, solved = await looked._solve(load_env_class(f"reasoning/{task}"), rows)
        assert known == solved == len(rows), task


OTHERS = [pytest.param(task, marks=pytest.mark.slow) for task in ("spiral_matrix", "knights_knaves", "game_of_life")]


@pytest.mark.parametrize("task", ["leg_counting", "puzzle24", "complex_arithmetic", *OTHERS])
def test_cheats_earn_little(task: str) -> None:
    env_class = load_env_class(f"reasoning/{task}")
    made = list(load_examples(rows_of(task, rows=12), env_class))
    truths = [str((example.get("task") or {})["ground_truth"]) for example in made]
    cheats = {
        "nothing": lambda at: "",
        "empty tags": lambda at: "<answer></answer>",
        "no tags": lambda at: truths[at],
        "echo": lambda at: f"<answer>{made[at]['prompt_messages'][-1]['content']}</answer>",
        "another's": lambda at: f"<answer>{truths[at - 1]}</answer>" if truths[at - 1] != truths[at] else "",
        "all": lambda at: f"<answer>{' '.join(truths)}</answer>",
        "many tags": lambda at: "".join(f"<answer>{truth}</answer>" for truth in sorted({*truths})),
        "the shown one": lambda at: str(made[at]["prompt_messages"][:2][-1]["content"]),
        "no number": lambda at: "<answer>nan + nanj</answer>",
        "no number either": lambda at: "<answer>nan</answer>",
        "a number": lambda at: f"<answer>{random.Random(at).randrange(100)}</answer>",
    }

    async def play() -> dict[str, float]:
        env = env_class()
        return {
            name: sum([await paid(env, example, cheat(at)) for at, example in enumerate(made)]) / len(made)
            for name, cheat in cheats.items()
        }

    earned = asyncio.run(play())
    assert max(earned.values()) < 0.2, earned


async def test_text_that_contains_the_answer_is_not_the_answer() -> None:
    env_class = load_env_class("reasoning/leg_counting")
    (example,) = load_examples(rows_of("leg_counting", rows=1), env_class)
    truth = (example.get("task") or {})["ground_truth"]
    assert await paid(env_class(), example, f"<answer>{truth} </answer>") == 1.0
    assert await paid(env_class(), example, f"<answer>{truth} or {int(truth) + 1}</answer>") == 0.0


@pytest.mark.parametrize(
    "task",
    ["spiral_matrix", "string_insertion", "binary_matrix", "n_queens", "puzzle24", "countdown", "simple_integration",
     "polynomial_multiplication", "number_sorting"],
)  # fmt: skip
async def test_an_answer_is_never_executed(task: str, tmp_path: Path) -> None:
    file = tmp_path / RAN
    env_class = load_env_class(f"reasoning/{task}")
    (example,) = load_examples(rows_of(task, rows=1), env_class)
    env = env_class()
    for attack in (
        f"[open({str(file)!r}, 'w')]",
        f"__import__('pathlib').Path({str(file)!r}).touch()",
        f"(lambda: open({str(file)!r}, 'w'))()",
        f"[[1], [__import__('os').system('touch {file}')]]",
    ):
        assert await paid(env, example, f"<answer>{attack}</answer>") == 0.0
    assert not file.exists()


@pytest.mark.parametrize("text", ["x.__class__", "os", "exec(1)", "'a'", "[1]", "a;b", "x if y else z", "lambda:1"])
def test_sympy_sees_expressions_only(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|name"):
        checked_expression(text)
    assert checked_expression("3*x**2 + sin(x)/(2.5 - y) + C") == "3*x**2 + sin(x)/(2.5 - y) + C"


async def test_an_answer_that_takes_for_ever_is_wrong() -> None:
    env_class = load_env_class("reasoning/puzzle24")
    (example,) = load_examples(rows_of("puzzle24", rows=1), env_class)
    first, *others = (example.get("task") or {})["entry"].split("'numbers': [")[1].split("]")[0].split(", ")
    began = time.monotonic()
    assert await paid(env_class(), example, f"<answer>{'**'.join(sorted([first, *others], key=int))}</answer>") == 0.0
    assert time.monotonic() - began < 40
    assert await paid(env_class(), example, str(env_class().demonstrate(example))) == 1.0


def test_a_row_of_no_task_is_refused() -> None:
    (row,) = rows_of("leg_counting", rows=1)
    with pytest.raises(DatasetError, match=r"no reasoning task 'leg_countin'\. Did you mean 'leg_counting'"):
        load_examples([{**row, "task": "leg_countin"}], ReasoningEnv)


@pytest.mark.parametrize("entry", ["{'question': 1", "{}", "json:[1]", "1"])
async def test_an_entry_that_is_no_puzzle_is_said(entry: str) -> None:
    (row,) = rows_of("graph_color", rows=1)
    (example,) = load_examples([{**row, "entry": entry}], ReasoningEnv)
    with pytest.raises(UsageError, match=r"The column entry of a row of graph_color holds no puzzle"):
        await paid(ReasoningEnv(), example, "<answer>17</answer>")


async def test_a_hundred_rollouts_at_once() -> None:
    made = list(load_examples(list(own_rows(ReasoningEnv))[:100], ReasoningEnv))
    truths = {str(each["prompt_messages"][-1]["content"]): (each.get("task") or {})["ground_truth"] for each in made}
    model = ScriptedModel(lambda messages: f"<answer>{truths[str(messages[-1]['content'])]}</answer>")
    async with EnvHost(ReasoningEnv) as host:
        done = await evaluate(host, made, model, concurrency=100)
    assert done.report.reward is not None
    assert done.report.reward.mean == 1.0


# The doctor


@pytest.mark.parametrize("task", ["leg_counting", "simple_equations"])
def test_the_doctor_finds_no_error(task: str) -> None:
    seen = benchmark().look(task, examples=3)
    assert seen.diagnosis.ok, str(seen.diagnosis)
    assert seen.known == seen.solved == seen.rows


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ninety_tasks_pass_the_doctor_and_solve_themselves() -> None:
    look, seen = benchmark().look, {}
    for task in NAMES:
        seen[task] = look(task, rows=24 if task == "knight_swap" else 64)
    assert sum(each.diagnosis.ok for each in seen.values()) >= 90
    assert all(each.known == each.solved for each in seen.values())
    assert {task for task, each in seen.items() if not each.known} == {"boxnet", "rush_hour"}, "they only score answers"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("level", LEVELS)
async def test_two_hundred_of_every_level_are_solved_by_their_answers(level: str) -> None:
    for task in MIXED:
        rows = rows_of(task, level, rows=200)
        known, solved = await benchmark()._solve(load_env_class(f"reasoning/{task}"), rows)
        assert known == solved == len(rows), task
