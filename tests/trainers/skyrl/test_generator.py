"""SkyRL's generator port with our rollouts behind it: the same tokens, its own checks and advantages."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage
from skyrl.train.generators.base import GeneratorInterface
from skyrl.train.utils.trainer_utils import validate_generator_output
from skyrl_world import ScriptedEngine, batch_of, generator_config

from benchmax.adapters.skyrl.generator import make_generator
from benchmax.errors import UsageError
from trainer_world import CASES, Script, SumEnv, expected, tokenizer

TOOLS = next(case for case in CASES if str(case) == "chatml-tools")


@pytest.fixture
def play():
    made = []

    async def run(case, *, env=None, fails=None, batch=None, **changes):
        encode = tokenizer(case.template)
        engine = ScriptedEngine(Script([case]), encode, fails=fails)
        generator = make_generator({"SumEnv": env or case.env}, generator_config(**changes), engine, encode)
        made.append(generator)
        assert isinstance(generator, GeneratorInterface)
        given = await generator.generate(batch or batch_of(case))
        validate_generator_output(len(case.samples), given, step_wise=bool(changes.get("step_wise_trajectories")))
        return given, engine, generator

    yield run
    for generator in made:
        generator.close()


def rows_of(given, *names):
    return sorted(zip(given["response_ids"], *(given[name] for name in names), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_trainer_receives_the_truth(case, play):
    given, engine, _ = await play(case)
    truths = expected(case)
    mean = fmean(truth.reward for truth in truths if truth.reward is not None)
    rows = rows_of(given, "prompt_token_ids", "loss_masks", "rollout_logprobs", "rewards", "stop_reasons")
    for (response, prompt, mask, logprobs, rewards, reason), truth in zip(rows, truths, strict=True):
        assert response == truth.response_ids
        assert prompt == truth.prompt_ids
        assert mask == truth.mask
        assert logprobs == pytest.approx(truth.logprobs)
        assert rewards[:-1] == truth.token_rewards[:-1]
        assert rewards[-1] == pytest.approx(mean if truth.reward is None else truth.reward)
        assert reason == {"finished": "stop"}.get(truth.ends, truth.ends)
    assert len(engine.ended) == len(set(engine.ended)) == len(case.samples)
    assert {request["cache_salt"] is not None for request in engine.requests} == {True}


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "unscored"], ids=str)
async def test_its_own_advantages_are_ours(case, play):
    given, _, _ = await play(case)
    longest = max(map(len, given["response_ids"]))
    padded = {name: torch.tensor([row + [0] * (longest - len(row)) for row in given[name]], dtype=torch.float32)
              for name in ("rewards", "loss_masks")}  # fmt: skip
    index = np.array(["17"] * len(case.samples))
    advantages, _ = compute_grpo_outcome_advantage(padded["rewards"], padded["loss_masks"], index)
    found = sorted(zip(given["response_ids"], advantages.tolist(), strict=True))
    for (response, values), truth in zip(found, expected(case), strict=True):
        wanted = [truth.advantage * sampled for sampled in truth.mask]
        # SkyRL adds 1e-6 to the standard deviation, TRL and we 1e-4.
        assert values[: len(response)] == pytest.approx(wanted, rel=1e-3, abs=1e-6)


async def test_unscored_siblings_leave_the_baseline_alone(play):
    case = next(case for case in CASES if str(case) == "chatml-unscored")
    given, _, _ = await play(case)
    scores = [sum(row) for row in given["rewards"]]
    (unscored,) = (index for index, mask in enumerate(given["loss_masks"]) if not any(mask))
    assert fmean(scores) == pytest.approx(fmean(s for i, s in enumerate(scores) if i != unscored))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_steps_are_samples_of_their_own(case, play):
    given, _, _ = await play(case, step_wise_trajectories=True)
    found: dict[int, list[int]] = {}
    for index, trajectory in enumerate(given["trajectory_ids"]):
        found.setdefault(trajectory.repetition_id, []).append(index)
    whole: dict[tuple[int, ...], list[list[int]]] = {}
    for indices in found.values():
        assert [given["is_last_step"][index] for index in indices] == [False] * (len(indices) - 1) + [True]
        last = indices[-1]
        whole.setdefault(tuple(given["prompt_token_ids"][last] + given["response_ids"][last]), []).append(indices)
    for truth in expected(case):
        indices = whole[tuple(truth.prompt_ids + truth.response_ids)].pop()
        for index, (start, end) in zip(indices, truth.steps, strict=True):
            assert given["prompt_token_ids"][index] == truth.prompt_ids + truth.response_ids[:start]
            assert given["response_ids"][index] == truth.response_ids[start:end]
            assert given["rollout_logprobs"][index] == pytest.approx(truth.logprobs[start:end])


async def test_an_engine_that_dies_costs_its_rollout_alone(play):
    asked = 0

    def fails(prompt):
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ConnectionError("replica 2 is gone")

    given, _, generator = await play(TOOLS, fails=fails)
    assert sorted(given["stop_reasons"]) == ["model_error", "stop", "stop", "stop"]
    (lost,) = (rollout for rollout in generator.last if rollout.reward is None)
    assert "replica 2 is gone" in lost.error.message
    assert given["rollout_metrics"]["benchmax/ended/model_error"] == 0.25


async def test_an_engine_that_is_gone_leaves_a_batch_that_skyrl_takes(play):
    def fails(prompt):
        raise ConnectionError("no replica left")

    given, _, _ = await play(TOOLS, fails=fails)
    assert given["stop_reasons"] == ["model_error"] * 4
    assert not any(map(any, given["loss_masks"]))


async def test_a_conversation_that_grows_too_long_ends_and_is_scored(play):
    first = len(expected(TOOLS)[0].prompt_ids)
    given, engine, _ = await play(TOOLS, max_input_length=first)
    assert sorted(given["stop_reasons"]) == ["context_exceeded"] * 3 + ["stop"]
    assert all(any(mask) for mask in given["loss_masks"])
    assert len(engine.requests) == 4


class Shy(SumEnv):
    async def init_rollout(self, rollout_id, **kwargs):
        raise RuntimeError("no server free")


async def test_an_environment_that_cannot_begin_loses_no_group(play):
    given, _, _ = await play(TOOLS, env=Shy)
    assert given["stop_reasons"] == ["env_error"] * 4


async def test_cut_responses_are_filtered_as_configured(play):
    case = next(case for case in CASES if str(case) == "chatml-budget")
    given, _, _ = await play(case, apply_overlong_filtering=True, zero_reward_on_non_stop=True)
    rows = dict(zip(given["stop_reasons"], zip(given["loss_masks"], given["rewards"], strict=True), strict=True))
    mask, rewards = rows["max_turns_exceeded"]
    assert not any(mask)
    assert not any(rewards)


async def test_an_environment_that_nobody_registered_is_named(play):
    with pytest.raises(UsageError, match=r"names the environment 'CubeEnv'; known are: SumEnv"):
        await play(TOOLS, batch=batch_of(TOOLS, env_class="CubeEnv"))
