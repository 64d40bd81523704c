"""Sessions in which something fails: each ends with our reason, and is released."""

from __future__ import annotations

import asyncio

import pytest
from openenv.core.generic_client import GenericEnvClient
from openenv_world import served

from benchmax.adapters.openenv.server import make_app
from benchmax.rollouts import RolloutSettings
from trainer_failures import LONG, ROUGH, SIBLINGS, RoughAloneEnv
from trainer_world import SumEnv

ENDS = sorted(
    [("finished", 1.0), ("finished", 1.0), ("context_exceeded", 1.0), ("reward_error", None), ("model_error", None),
     ("env_error", None)], key=str,
)  # fmt: skip
"""As everywhere, but without the reward of the group, which a session does not know."""


async def play(url, turns):
    """What a trainer does that takes `LONG` characters, and whose engine dies where a turn is None."""
    async with GenericEnvClient(base_url=url) as env:
        result = await env.reset()
        read = 0
        for text in turns:
            if result.done:
                break
            read += sum(len(message["content"]) for message in result.observation["messages"])
            stop = "context_exceeded" if read >= LONG else "model_error" if text is None else None
            result = await env.step({"stop": stop} if stop else {"text": text})
        return result.metadata["termination"], result.reward


async def test_everything_that_happens_ends_with_our_reason():
    RoughAloneEnv.start_anew()
    app = make_app(RoughAloneEnv, [ROUGH.row])
    with served(app) as url:
        found = [await play(url, SIBLINGS[0]), await play(url, ("said to nobody",))]
        found += await asyncio.gather(*(play(url, turns) for turns in SIBLINGS[1:]))
    app.state.benchmax_session.close()
    assert sorted(found, key=str) == ENDS
    assert sorted(RoughAloneEnv.released) == sorted(RoughAloneEnv.begun)


async def test_a_reward_of_the_group_alone_is_missed_aloud(caplog):
    class OnlyTogether(RoughAloneEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
            return [{"won": 1.0} for _ in rollout_ids]

    OnlyTogether.start_anew()
    app = make_app(OnlyTogether, [ROUGH.row])
    assert "compute_group_reward" in caplog.text
    with served(app) as url:
        async with GenericEnvClient(base_url=url) as env:
            await env.reset()
            ended = await env.step({"text": "done"})
    app.state.benchmax_session.close()
    assert (ended.done, ended.reward) == (True, None)
    assert "compute_group_reward" in ended.metadata["error"]


@pytest.fixture
def url():
    app = make_app(SumEnv, [ROUGH.row], settings=RolloutSettings(model_seconds=0.05))
    with served(app) as address:
        yield address
    app.state.benchmax_session.close()


async def test_a_turn_may_take_as_long_as_the_trainer_needs(url):
    async with GenericEnvClient(base_url=url) as env:
        await env.reset()
        await asyncio.sleep(0.3)
        assert (await env.step({"text": "4"})).reward == 1.25


async def test_a_prompt_that_does_not_fit_is_not_scored(url):
    async with GenericEnvClient(base_url=url) as env:
        await env.reset()
        ended = await env.step({"stop": "context_exceeded"})
        assert (ended.done, ended.reward, ended.metadata["termination"]) == (True, None, "context_exceeded")
        assert "no longer fits the trainer's model" in ended.metadata["error"]
        with pytest.raises(RuntimeError, match=r"Call reset\(\)"):
            await env.step({"stop": "context_exceeded"})


async def test_a_reason_that_nobody_knows_is_refused(url):
    async with GenericEnvClient(base_url=url) as env:
        await env.reset()
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            await env.step({"stop": "bored"})
        assert (await env.step({"text": "4"})).reward == 1.25
