"""OpenEnv's own client against our server: a session is a rollout, with our tools, budgets and rewards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from openenv.core.generic_client import GenericEnvClient
from openenv_world import served

from benchmax.adapters.openenv.server import make_app
from benchmax.rollouts import RolloutSettings
from trainer_world import CASES, SumEnv, _call

ROOT = Path(__file__).resolve().parents[3]
ROWS = [{"prompt": f"What is {n} + 2?", "ground_truth": str(n + 2)} for n in range(6)]
PLAYED = [case for case in CASES if case.template.name == "chatml" and case.name != "group reward"]


class Counting(SumEnv):
    """Sums that note who is there."""

    open: set[str] = set()
    most = 0
    lock = threading.Lock()

    async def init_rollout(self, rollout_id, **kwargs):
        with self.lock:
            self.open.add(rollout_id)
            Counting.most = max(Counting.most, len(self.open))

    async def release_rollout(self, rollout_id):
        with self.lock:
            self.open.discard(rollout_id)


class Broken(SumEnv):
    async def init_rollout(self, rollout_id, **kwargs):
        raise RuntimeError("no seat")


@pytest.fixture
def url():
    app = make_app(Counting, ROWS, settings=RolloutSettings(max_turns=3), sessions=64)
    with served(app) as address:
        yield address
    app.state.benchmax_session.close()


def client(url):
    return GenericEnvClient(base_url=url)


async def test_reset_has_the_prompt_and_the_tools(url):
    async with client(url) as env:
        first = await env.reset(index=2)
        assert [message["role"] for message in first.observation["messages"]] == ["system", "user"]
        assert first.observation["messages"][1]["content"] == "What is 2 + 2?"
        assert first.observation["tools"][0]["function"]["name"] == "add"
        assert (first.done, first.reward) == (False, None)


@pytest.mark.parametrize("calls", ["text", "parsed"])
async def test_tools_run_and_the_end_is_scored(url, calls):
    function = {"name": "add", "arguments": json.dumps({"a": 2, "b": 2})}
    turn = {"text": _call(2, 2)} if calls == "text" else {
        "text": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]
    }  # fmt: skip
    async with client(url) as env:
        await env.reset(index=2)
        answered = await env.step(turn)
        assert [message["content"] for message in answered.observation["messages"]] == ["4"]
        assert not answered.done
        ended = await env.step({"text": "4"})
        state = await env.state()
    assert (ended.done, ended.reward) == (True, 1.25)
    assert ended.metadata["rewards"] == {"correct": 1.0, "brief": 0.25}
    assert ended.metadata["termination"] == "finished"
    assert (state["step_count"], state["index"]) == (2, 2)


@pytest.mark.parametrize("case", PLAYED, ids=str)
async def test_the_same_conversations_earn_the_same(case):
    app = make_app(case.env, [case.row], settings=RolloutSettings(max_turns=case.max_turns))
    with served(app) as url:
        for sample in case.samples:
            async with client(url) as env:
                result = await env.reset()
                for turn in sample.turns:
                    result = await env.step({"text": turn.says})
                    if not result.done:
                        assert tuple(m["content"] for m in result.observation["messages"]) == turn.tools
            assert (result.done, result.reward) == (True, sample.reward)
            assert result.metadata["termination"] == sample.ends
    app.state.benchmax_session.close()


async def test_sessions_are_rollouts_of_their_own_and_run_at_once(url):
    Counting.most = 0
    gate = asyncio.Barrier(24)

    async def play(number):
        async with client(url) as env:
            await env.reset(index=number % 6)
            await gate.wait()
            return (await env.step({"text": str(number % 6 + 2)})).reward

    assert await asyncio.gather(*map(play, range(24))) == [1.25] * 24
    assert Counting.most == 24
    assert not Counting.open


async def test_a_session_that_goes_away_is_released(url):
    async with client(url) as env:
        await env.reset()
        assert len(Counting.open) == 1
        await env.reset()
        assert len(Counting.open) == 1
    async with asyncio.timeout(20):
        while Counting.open:
            await asyncio.sleep(0.02)


async def test_rows_by_seed_by_number_and_in_turn(url):
    async with client(url) as env:
        twice = [(await env.reset(seed=7)).observation["messages"] for _ in range(2)]
        assert twice[0] == twice[1]
        asked = [(await env.reset()).observation["messages"][1]["content"] for _ in range(7)]
        assert len(set(asked)) == 6
        with pytest.raises(RuntimeError, match="There is no row 99; there are 6"):
            await env.reset(index=99)


async def test_a_step_before_reset_says_what_to_do(url):
    async with client(url) as env:
        with pytest.raises(RuntimeError, match=r"Call reset\(\) before step\(\)"):
            await env.step({"text": "4"})


async def test_a_rollout_that_cannot_begin_ends_without_a_reward():
    app = make_app(Broken, ROWS)
    with served(app) as url:
        async with client(url) as env:
            result = await env.reset()
    app.state.benchmax_session.close()
    assert (result.done, result.reward) == (True, None)
    assert result.metadata["termination"] == "env_error"
    assert result.metadata["error"].startswith("no seat (at test_server.py:")


async def test_tasks_can_be_discovered(url):
    async with httpx.AsyncClient(base_url=url) as http:
        found = (await http.get("/schema")).json()
        assert set(found["action"]["properties"]) >= {"text", "tool_calls"}
        count = (await http.post("/Counting/num_tasks", json={"split": "train"})).json()
    assert 6 in count.values()


def test_the_command_serves_what_the_page_says(tmp_path):
    page = (ROOT / "docs" / "trainers" / "openenv.md").read_text("utf-8")
    (command,) = re.findall(r"^python (-m benchmax\.adapters\.openenv .*)$", page, re.MULTILINE)
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    words = [sys.executable, *command.split()]
    words[words.index("--port") + 1] = port = "18431"
    server = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            except httpx.ConnectError:
                assert server.poll() is None, server.stderr.read().decode()
                time.sleep(0.1)
        done = subprocess.run(
            [sys.executable, "-c", script.replace("8000", port)], capture_output=True, text=True, timeout=120
        )
    finally:
        server.terminate()
        server.wait(20)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\['system',.* 'user'\]\nTrue [\d.]+ finished\n", done.stdout)


def test_an_environment_that_is_not_there_is_one_line(capsys):
    from benchmax.adapters.openenv.__main__ import main

    assert main(["no-such-environment"]) == 2
    assert capsys.readouterr().err.startswith("error: There is no environment named 'no-such-environment'")


def test_arguments_of_the_constructor_are_given_as_everywhere(capsys):
    from benchmax.adapters.openenv.__main__ import main

    assert main(["arithmetic", "--env-arg", "{size: 3}"]) == 2
    assert main(["arithmetic", "--env-arg", "nonsense=3"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: --env-arg '{size: 3}' is not KEY=VALUE.")
    assert "nonsense" in second
