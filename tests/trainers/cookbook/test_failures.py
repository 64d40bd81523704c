"""A group in which rollouts fail, in the cookbook's own rollouts: what it keeps comes back, with our reasons."""

from __future__ import annotations

import pytest
from test_cookbook import Scripted, group_of
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollout_strategy import MinViableGroup
from tinker_cookbook.rl.rollouts import do_group_rollout

from trainer_failures import GROUP, LONG, ROUGH, Actor, RoughEnv


async def test_a_group_in_which_everything_happens_comes_back():
    """All but the rollout whose sampler raised: that is the cookbook's to drop, and ours to release."""
    RoughEnv.start_anew()
    builder = await group_of(ROUGH, context=LONG)
    strategy = MinViableGroup(min_successful=2, max_retries=0)
    group = await do_group_rollout(builder, Scripted(Actor(ROUGH.template)), strategy=strategy)
    found = [
        (trajectory.stop_reason, None if numbers["unscored"] else reward)
        for trajectory, numbers, reward in zip(
            group.trajectories_G, group.metrics_G, group.get_total_rewards(), strict=True
        )
    ]
    assert sorted(found, key=str) == [each for each in GROUP if each[0] != "model_error"]
    assert [error.error_type for error in group.rollout_errors] == ["ConnectionError"]
    advantages = compute_advantages([group])
    for (_, reward), advantage in zip(found, advantages[0].tolist(), strict=True):
        assert (reward is None) == (advantage == pytest.approx(0.0, abs=1e-6))
    assert assemble_training_data([group], advantages)[0]
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)
