"""What is listed of the ready environments is so, and each is played by hand as a notebook does it."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from benchmax.cli.app import app
from benchmax.cli.local.evals import parse_env_args
from benchmax.envs.catalogue import BUILT_IN, LISTINGS
from benchmax.envs.demonstration import Script
from benchmax.envs.loading import load_env_class, make_env, own_rows
from benchmax.errors import UsageError

MADE_SLOWLY = {"code"}
"""Environments whose rows are checked while they are made."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in MADE_SLOWLY else []) for name in LISTINGS]
)
async def test_the_listing_says_what_there_is(name):
    env_class, listed = load_env_class(name), LISTINGS[name]
    env = make_env(env_class, {})
    try:
        assert tuple(tool.name for tool in await env.list_tools()) == listed.tools
    finally:
        await env.shutdown()
    for argument, number in listed.more_tools.items():
        env = make_env(env_class, parse_env_args([argument]))
        try:
            assert len(await env.list_tools()) == number
        finally:
            await env.shutdown()
    rows = own_rows(env_class)
    assert listed.rows in (0, len(rows))
    assert rows[:3] == own_rows(env_class, listed.datasets[0])[:3]
    assert all(own_rows(env_class, each) for each in listed.datasets[1:])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["crm", "excel", "math", "search", "telestich", "wikipedia"])
def test_no_number_of_rows_is_the_usual_one(name):
    env_class = load_env_class(name)
    assert env_class.load_dataset(rows=None) == env_class.load_dataset()


def test_every_built_in_is_listed():
    assert list(LISTINGS) == list(BUILT_IN)
    done = CliRunner().invoke(app, ["env", "list", "--json"])
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert found["code"]["datasets"] == ["lines", "steps", "cases", "algorithms"]
    assert found["math"]["tools"] == ["calculate"]
    assert found["excel"]["more_tools"]["level=manipulation"] == 4
    assert "set_cell; 4 with level=manipulation" in CliRunner().invoke(app, ["env", "list"]).stdout
    shown = CliRunner().invoke(app, ["env", "show", "crm", "--env-arg", "level=steps"]).stdout
    assert "tools by --env-arg: 12 with level=steps, 25 with level=reports" in shown
    assert "issue_sosl_query" in shown


def test_rows_of_a_level_bring_its_tools() -> None:
    assert parse_env_args(None, "crm", "steps") == {"level": "steps"}
    assert parse_env_args(["level=reports"], "crm", "steps") == {"level": "reports"}
    assert parse_env_args(None, "crm", "lookup") == parse_env_args(None, "mine.py:Env", "steps") == {}
    played = CliRunner().invoke(app, ["env", "run", "crm", "--data", "reports", "--json"])
    (rollout,) = json.loads(played.stdout)
    assert rollout["reward"] == 1.0, "the demonstration calls tools of the level"


async def by_hand(name: str) -> float:
    """list_tools → init_rollout → run_tool → compute_reward → release_rollout."""
    env_class = load_env_class(name)
    env = make_env(env_class, {"tools": True} if name == "code" else {})
    try:
        assert await env.list_tools()
        example = env.dataset_preprocess(own_rows(env_class)[0])
        await env.init_rollout("one", **(example["init_rollout_args"] or {}))
        script = await Script.of(env.demonstrate, example)
        turn = await script.turn()
        while not isinstance(turn, str):
            said = [await env.run_tool("one", call.name, **call.arguments_dict()) for call in turn]
            turn = await script.turn([str(getattr(each, "text", each)) for each in said])
        messages = [{"role": "assistant", "content": turn}]
        rewards = await env.compute_reward("one", messages, example["task"])
        await env.release_rollout("one")
        return rewards[env.PRIMARY_REWARD_KEY]
    finally:
        await env.shutdown()


@pytest.mark.parametrize("name", ["math", "crm", "code"])
async def test_by_hand_where_a_loop_runs_already(name):
    assert await by_hand(name) == 1.0


@pytest.mark.parametrize("name", [pytest.param("math", marks=pytest.mark.slow), "crm"])
def test_by_hand_in_a_script(name):
    assert asyncio.run(by_hand(name)) == 1.0


@pytest.mark.parametrize("name", LISTINGS)
def test_an_argument_that_it_does_not_take_is_refused(name):
    with pytest.raises(UsageError, match="takes no argument 'levle'"):
        make_env(load_env_class(name), {"levle": 1})


def test_a_level_is_played_with_its_tools():
    words = ["env", "run", "crm", "--data", "steps", "--json"]
    wrong = CliRunner().invoke(app, [*words, "--env-arg", "level=lookup"])
    assert (wrong.exit_code, "Add --env-arg level=steps" in wrong.output) == (1, True)
    right = CliRunner().invoke(app, words)
    assert right.exit_code == 0, right.output
    assert [each["reward"] for each in json.loads(right.stdout)] == [1.0]
    shown = CliRunner().invoke(app, ["env", "show", "crm", "--env-arg", "level=steps", "--json"])
    assert len(json.loads(shown.stdout)["tools"]) > 1


def test_train_takes_arguments_of_the_environment(monkeypatch):
    taken = []
    monkeypatch.setattr("benchmax.cli.local.train._run", lambda config, *_: taken.append(config.data))
    words = ["train", "crm", "--data", "steps", "--env-arg", "level=steps", "--env-arg", "company=3"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert [data.env_args for data in taken] == [{"level": "steps", "company": 3}]


@pytest.mark.parametrize("name", ["crm", "wikipedia", "search"])
def test_env_run_plays_the_solution_through_the_tools(name):
    done = CliRunner().invoke(app, ["env", "run", name, "--json"])
    (played,) = json.loads(done.stdout)
    said = played["messages"][played["completion_start"] :]
    assert "tool" in [message["role"] for message in said]
    assert played["reward"] == pytest.approx(1.0)
