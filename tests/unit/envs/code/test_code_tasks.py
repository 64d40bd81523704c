"""Generated tasks: solved by their demonstrations, the same everywhere, and not to be guessed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmax.doctor import examine
from benchmax.envs.code.code_env import CodeEnv
from benchmax.envs.code.levels import LEVELS, make_rows
from benchmax.envs.code.reward import chance, read_cases
from benchmax.envs.loading import load_env_class
from code_world import asked, examples_of, played, solver

SOAK = pytest.param(200, marks=pytest.mark.slow)


@pytest.mark.parametrize("rows", [40, SOAK])
@pytest.mark.parametrize("level", LEVELS)
async def test_demonstrations_earn_everything(level, rows):
    examples = examples_of(level, rows)
    assert len(examples) == rows
    rollouts = await played(examples, solver(examples))
    assert [asked(each.messages[:-1]) for each in rollouts if each.reward != 1.0] == []


async def test_demonstrations_try_their_code_where_there_is_a_tool():
    examples = examples_of("lines", 12)
    rollouts = await played(examples, solver(examples, tools=True), tools=True)
    assert [(each.reward, len(each.tool_events)) for each in rollouts] == [(1.0, 1)] * 12
    assert all("right" in str(message["content"]) for each in rollouts for message in each.messages[-2:-1])


@pytest.mark.parametrize("level", LEVELS)
def test_rows_are_the_same_everywhere_and_all_different(level):
    rows = make_rows(level, rows=60, seed=3)
    made = f"make_rows({level!r}, rows=60, seed=3)"
    code = f"import json; from benchmax.envs.code.levels import make_rows; print(json.dumps({made}))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": "5"}, cwd="/"
    )
    assert json.loads(elsewhere.stdout) == rows
    assert len({row["prompt"] for row in rows}) == 60
    assert rows != make_rows(level, rows=60, seed=4)


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_five_hundred_tasks_whose_tests_cannot_be_guessed(level):
    rows = make_rows(level, rows=500)
    assert len(rows) == 500
    for row in rows:
        hidden, shown = read_cases(row["tests"]), read_cases(row["examples"])
        assert chance(hidden) <= 0.5, row["prompt"]
        assert not [case for case in shown if case in hidden], row["prompt"]
        assert all(repr(case.expected) in row["prompt"] for case in shown)


def test_prompts_hold_no_solution_and_ids_no_path():
    for example in examples_of("lines", 40):
        shown = json.dumps(example["prompt_messages"][-1])
        body = example["task"]["solution"].splitlines()[-1].strip()
        assert body not in shown
        assert "/" not in example["id"]
    assert [each["id"] for each in examples_of("lines", 5)] == [each["id"] for each in examples_of("lines", 5)]


def test_it_has_a_name():
    assert load_env_class("code") is CodeEnv


@pytest.mark.parametrize("tools", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_the_doctor_finds_nothing(tools):
    rows, _ = CodeEnv.load_dataset(rows=60)
    report = await examine(CodeEnv, rows=rows, env_args={"tools": tools})
    assert [str(each) for each in (*report.errors, *report.warnings)] == []
