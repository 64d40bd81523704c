"""SkyRL's own generator, with our environment behind its `BaseTextEnv`."""

from __future__ import annotations

import threading

import pytest
import skyrl_gym
from skyrl.train.config import SkyRLGymConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl_gym.envs.registration import deregister
from skyrl_world import ScriptedEngine, batch_of, generator_config

from benchmax.adapters.skyrl.text_env import register
from trainer_world import ADD, CASES, PlainSumEnv, Script, SumEnv, expected, tokenizer

# Where the template describes tools itself, SkyRL does not use that: it renders the prompt of the dataset.
TEXT = [case for case in CASES if not case.template.native or case.env is PlainSumEnv]
SUPPORTED = [case for case in TEXT if case.name not in ("group reward", "unscored")]


@pytest.fixture
def registered():
    opened = []

    def add(env):
        opened.append(register("SumEnv", env))

    yield add
    deregister("SumEnv")
    for session in opened:
        session.close()


async def generate(case, **changes):
    encode = tokenizer(case.template)
    engine = ScriptedEngine(Script([case]), encode)
    own = SkyRLGymGenerator(generator_config(**changes), SkyRLGymConfig(), engine, encode)
    tools = () if case.env is PlainSumEnv else [ADD]
    return await own.generate(batch_of(case, tools=tools), disable_tqdm=True)


@pytest.mark.parametrize("case", SUPPORTED, ids=str)
async def test_its_own_generator_plays_the_truth(case, registered):
    registered(case.env)
    given = await generate(case)
    names = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards")
    rows = sorted(zip(*(given[name] for name in names), strict=True), key=lambda row: row[1])
    for (prompt, response, mask, logprobs, rewards), truth in zip(rows, expected(case), strict=True):
        assert prompt == truth.prompt_ids
        assert response == truth.response_ids
        assert mask == truth.mask
        assert logprobs == pytest.approx(truth.logprobs)
        assert rewards == truth.token_rewards


async def test_metrics_of_the_rollout_reach_its_log(registered):
    case = next(case for case in SUPPORTED if case.name == "tools")
    registered(case.env)
    metrics = (await generate(case))["rollout_metrics"]
    assert metrics["environment/correct"] == 0.5
    assert metrics["environment/tool_calls"] == 1.25


class Held(SumEnv):
    """Counts rollouts that are begun and not released."""

    held: set[str] = set()
    free = threading.Condition()

    async def init_rollout(self, rollout_id, **kwargs):
        self.held.add(rollout_id)

    async def release_rollout(self, rollout_id):
        with self.free:
            self.held.discard(rollout_id)
            self.free.notify_all()


async def test_a_rollout_that_skyrl_gives_up_is_released(registered):
    case = next(case for case in SUPPORTED if case.name == "tools")
    registered(Held)
    env = skyrl_gym.make("SumEnv", env_config={}, extras={"max_turns": 3, **batch_of(case)["env_extras"][0]})
    env.init(batch_of(case)["prompts"][0])
    assert len(Held.held) == 1
    env.close()
    with Held.free:
        assert Held.free.wait_for(lambda: not Held.held, 20)


async def test_an_environment_that_cannot_begin_ends_at_its_first_step(registered):
    class Shy(SumEnv):
        async def init_rollout(self, rollout_id, **kwargs):
            raise RuntimeError("no server free")

    case = next(case for case in SUPPORTED if case.name == "tools")
    registered(Shy)
    given = await generate(case)
    assert len(given["response_ids"]) == 4
    assert given["rollout_metrics"]["environment/unscored"] == 1.0
