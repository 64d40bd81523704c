"""Servers of OpenEnv as environments of ours: a session for each rollout, its steps as tools."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from openenv_world import page_command, served

from benchmax.adapters.openenv.server import make_app
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import load_env_class, own_rows
from benchmax.envs.types import ToolCall
from benchmax.errors import UsageError
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_batch
from trainer_world import SumEnv


class GuessAction(Action):
    """Guess the number."""

    number: int


class GuessObservation(Observation):
    says: str = ""


class Guess(Environment):
    """A number to guess; the seed decides it."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    open = 0
    repeatable = True

    def __init__(self):
        super().__init__()
        self._secret = None
        type(self).open += 1

    def reset(self, seed=None, episode_id=None, **more):
        self._secret = random.Random(seed if self.repeatable else None).randrange(10**6)
        return GuessObservation(says=f"Guess! A hint: {self._secret}")

    def step(self, action, timeout_s=None, **more):
        right = action.number == self._secret
        return GuessObservation(says="Right." if right else "Wrong.", done=right, reward=1.0 if right else -0.25)

    @property
    def state(self):
        return State()

    def close(self):
        type(self).open -= 1


class Unseeded(Guess):
    repeatable = False


class Sums(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("sums")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **more):
        return Observation(metadata={})

    def _step_impl(self, action, timeout_s=None, **more):
        raise NotImplementedError

    @property
    def state(self):
        return State()


@pytest.fixture
def guesses():
    Guess.open = 0
    with served(create_fastapi_app(Guess, GuessAction, GuessObservation, max_concurrent_envs=64)) as url:
        yield f"openenv:{url}"


async def play(spec, script, rows="8", size=1):
    env = load_env_class(spec)
    async with EnvHost(env) as host:
        examples = list(load_examples(own_rows(env, rows), env))
        return await run_batch(host, examples, ScriptedModel(script), group_size=size)


def guess(messages):
    """One wrong guess, then the hint."""
    number = messages[0]["content"].split()[-1]
    told = [message for message in messages if message["role"] == "tool"]
    if len(told) == 2:
        return "I have it."
    return ToolCall("step", '{"number": %s}' % (number if told else "-1"))


async def test_steps_are_tools_and_rewards_add_up(guesses):
    rollouts = await play(guesses, guess, size=3)
    assert len(rollouts) == 24
    for rollout in rollouts:
        assert (rollout.reward, rollout.termination) == (0.75, "finished")
        said = [message["content"] for message in rollout.messages if message["role"] == "tool"]
        assert said == ["Wrong.", "Right.\nThe episode is over."]
    assert len({rollout.messages[0]["content"] for rollout in rollouts}) == 8


def test_the_command_of_the_page_plays_it(guesses, tmp_path):
    words = [guesses if word.startswith("openenv:") else word for word in page_command("openenv:")]
    main = [sys.executable, "-c", "from benchmax.cli import main; main()", *words]
    done = subprocess.run(main, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "steps" / "rollouts.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [0.0] * 4  # a model that does nothing earns nothing


async def test_an_action_that_does_not_fit_is_told_to_the_model(guesses):
    (rollout,) = await play(guesses, [ToolCall("step", '{"number": "many"}'), "done"], rows="1")
    (said,) = (message["content"] for message in rollout.messages if message["role"] == "tool")
    assert "Wrong arguments for step" in said
    assert rollout.reward == 0.0


async def test_nothing_goes_on_after_the_end(guesses):
    def on(messages):
        number = messages[0]["content"].split()[-1]
        told = sum(message["role"] == "tool" for message in messages)
        return "done" if told == 2 else ToolCall("step", f'{{"number": {number}}}')

    (rollout,) = await play(guesses, on, rows="1")
    assert rollout.messages[-2]["content"] == "Error: The episode is over. Give the final answer."
    assert rollout.reward == 1.0


async def test_a_server_without_repeatable_seeds_is_refused():
    app = create_fastapi_app(Unseeded, GuessAction, GuessObservation, max_concurrent_envs=8)
    with served(app) as url, pytest.raises(UsageError, match="begins differently with the same seed"):
        own_rows(load_env_class(f"openenv:{url}"))


async def test_tools_of_a_server_are_ours():
    with served(create_fastapi_app(Sums, CallToolAction, CallToolObservation, max_concurrent_envs=8)) as url:
        script = [ToolCall("add", '{"a": 2, "b": 3}'), "5"]
        (rollout,) = await play(f"openenv:{url}", script, rows="1")
    (said,) = (message["content"] for message in rollout.messages if message["role"] == "tool")
    assert said == "5"
    assert rollout.termination == "finished"


async def test_an_environment_of_ours_comes_back():
    app = make_app(SumEnv, [{"prompt": "What is 2 + 2?", "ground_truth": "4"}])
    with served(app) as url:
        (rollout,) = await play(f"openenv:{url}", [ToolCall("step", '{"text": "4"}'), "done"], rows="1")
    app.state.benchmax_session.close()
    assert "What is 2 + 2?" in rollout.messages[0]["content"]
    assert rollout.reward == 1.25


def test_an_address_that_is_none():
    with pytest.raises(UsageError, match=r"openenv:http://127\.0\.0\.1:8000"):
        load_env_class("openenv:somewhere")
