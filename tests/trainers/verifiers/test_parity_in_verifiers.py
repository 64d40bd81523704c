"""verifiers' own rollouts of our environment: the tokens, masks, log-probs and rewards of everywhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from verifiers_world import config, rows_file, run, token_server, tokens_of, training

from trainer_world import CASES, Case, Script, expected

pytestmark = pytest.mark.asyncio(loop_scope="session")  # verifiers' renderers keep a lock for the process


def in_text(case: Case) -> Case:
    """With the tools in the system message: verifiers' renderer for any template knows no others."""
    return replace(case, template=case.template._replace(native=False))


def settings(case: Case, folder, **more):
    env, data = f"trainer_world.{case.env.__name__}", rows_file(folder, [case.row])
    return config(env, data, harness={"tool_format": "hermes"}, agent={"max_turns": case.max_turns}, **more)


@pytest.mark.parametrize("case", [in_text(case) for case in CASES], ids=str)
async def test_the_trainer_receives_the_truth(case, tmp_path):
    together = case.name == "group reward"
    count = len(case.samples)
    async with token_server(Script([case]).next_turn) as url:
        ctx = training(url, tokens_of(case.template, tmp_path / "model"))
        more = {"siblings": count, "max_concurrent_agents": count} if together else {}
        episodes = await run(settings(case, tmp_path, **more), ctx, 1 if together else count)
    traces = [trace for episode in episodes for trace in episode.traces]
    assert len(traces) == count
    for trace, truth in zip(sorted(traces, key=response_of), expected(case), strict=True):
        (branch,) = trace.branches
        first = len(truth.prompt_ids)
        assert branch.token_ids == truth.prompt_ids + truth.response_ids
        assert branch.logprobs[first:] == pytest.approx(truth.logprobs)
        sampled = [place for start, end in truth.steps for place in range(first + start, first + end)]
        assert [place for place, each in enumerate(branch.sampled_mask) if each] == sampled
        assert trace.ok == (truth.reward is not None)
        assert trace.info["benchmax"]["termination"] == truth.ends
        if truth.reward is not None:
            assert trace.reward == pytest.approx(truth.reward)


def response_of(trace):
    (branch,) = trace.branches
    return branch.token_ids[branch.sampled_mask.index(True) :]
