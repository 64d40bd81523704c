"""Episodes in which rollouts fail: every trace comes back, with our reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_parity_in_verifiers import in_text
from verifiers_world import config, rows_file, run, token_server, tokens_of, training

from trainer_failures import COUNT, GROUP, LONG, ROUGH, SIBLINGS, Actor, RoughAloneEnv, RoughEnv

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def play(case, folder, times, conversations=SIBLINGS, **more):
    env, data = f"trainer_failures.{case.env.__name__}", rows_file(folder, [case.row])
    settings = config(env, data, harness={"tool_format": "hermes"}, **more)
    async with token_server(Actor(case.template, conversations).next_turn, context=LONG) as url:
        ctx = training(url, tokens_of(case.template, folder / "model"))
        episodes = await run(settings, ctx, times)
    return [trace for episode in episodes for trace in episode.traces]


def ended(traces):
    found = [(trace.info["benchmax"]["termination"], trace.reward if trace.ok else None) for trace in traces]
    return sorted(found, key=str)


async def test_a_group_in_which_everything_happens_comes_back_whole(tmp_path):
    RoughEnv.start_anew()
    traces = await play(in_text(ROUGH), tmp_path, 1, siblings=COUNT, max_concurrent_agents=COUNT)
    assert ended(traces) == GROUP
    for trace in traces:
        reason = trace.info["benchmax"]["termination"]
        assert trace.stop_condition == {"finished": "agent_completed"}.get(reason, reason)
        assert trace.ok or trace.rewards == {}
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)


async def test_rollouts_by_themselves_come_back_whole(tmp_path):
    RoughAloneEnv.start_anew()
    traces = await play(replace(in_text(ROUGH), env=RoughAloneEnv), tmp_path, COUNT)
    alone = [(reason, 1.0 if reward else None) for reason, reward in GROUP]
    assert ended(traces) == sorted(alone, key=str)
    assert sorted(RoughAloneEnv.released) == sorted(RoughAloneEnv.begun)
