"""Groups in which rollouts fail, in SkyRL's types: all of them come back, with our reasons."""

from __future__ import annotations

from statistics import fmean

import pytest
import skyrl_gym
from skyrl.train.config import SkyRLGymConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.utils.trainer_utils import validate_generator_output
from skyrl_gym.envs.registration import deregister
from skyrl_world import ScriptedEngine, batch_of, generator_config

from benchmax.adapters.skyrl.generator import make_generator
from benchmax.adapters.skyrl.text_env import register
from trainer_failures import (
    COUNT,
    FINISHES,
    GROUP,
    LONG,
    OVERFLOWS,
    RAISES,
    RECALL,
    RECALLS,
    REPEAT,
    ROUGH,
    Actor,
    RoughAloneEnv,
    RoughEnv,
)  # fmt: skip
from trainer_world import TEMPLATES, Case, tokenizer


@pytest.mark.parametrize("stepwise", [False, True])
async def test_a_group_in_which_everything_happens_comes_back_whole(stepwise):
    RoughEnv.start_anew()
    encode = tokenizer(ROUGH.template)
    config = generator_config(max_input_length=LONG, step_wise_trajectories=stepwise)
    generator = make_generator({"SumEnv": RoughEnv}, config, ScriptedEngine(Actor(ROUGH.template), encode), encode)
    given = await generator.generate(batch_of(ROUGH))
    validate_generator_output(COUNT, given, step_wise=stepwise)
    generator.close()
    found = sorted(((each.termination.value, each.reward) for each in generator.last), key=str)
    assert found == GROUP
    mean = fmean(reward for _, reward in GROUP if reward is not None)
    last = given["is_last_step"] or [True] * COUNT
    rows = [
        ({"stop": "finished"}.get(reason, reason), sum(rewards) if any(mask) else None, sum(rewards))
        for reason, rewards, mask, ends in zip(
            given["stop_reasons"], given["rewards"], given["loss_masks"], last, strict=True
        )
        if ends
    ]
    assert sorted((row[:2] for row in rows), key=str) == GROUP
    assert all(total == pytest.approx(mean) for _, reward, total in rows if reward is None)
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)


async def test_its_own_generator_brings_every_rollout_back():
    """One after another begins, so the second, which cannot, is the second to speak. The engine is SkyRL's to ask."""
    RoughAloneEnv.start_anew()
    session = register("SumEnv", RoughAloneEnv)
    case = Case("rough", TEMPLATES[1], RoughAloneEnv, ROUGH.samples[:5])
    encode = tokenizer(case.template)
    actor = Actor(case.template, [FINISHES, ("said to nobody",), RECALLS, RAISES, OVERFLOWS])
    own = SkyRLGymGenerator(
        generator_config(max_input_length=LONG),
        SkyRLGymConfig(max_env_workers=1),
        ScriptedEngine(actor, encode),
        encode,
    )
    given = await own.generate(batch_of(case, tools=[RECALL, REPEAT]), disable_tqdm=True)
    deregister("SumEnv")
    session.close()
    assert len(given["response_ids"]) == 5
    assert sorted(map(sum, given["rewards"])) == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert sorted(given["stop_reasons"]) == ["length", "stop", "stop", "stop", "stop"]
    metrics = given["rollout_metrics"]
    assert metrics["environment/unscored"] == pytest.approx(3 / 5)
    assert metrics["environment/context_exceeded"] == pytest.approx(1 / 5)
    assert metrics["environment/tool_calls"] == pytest.approx(3 / 5)
    assert sorted(RoughAloneEnv.released) == sorted(RoughAloneEnv.begun)


def test_a_rollout_that_skyrl_never_began_has_no_metrics():
    session = register("SumEnv", RoughAloneEnv)
    env = skyrl_gym.make("SumEnv", env_config={}, extras={})
    assert env.get_metrics() == {}
    env.close()
    deregister("SumEnv")
    session.close()
