"""Mistakes in a user's own script: each ends in one sentence that says what to do."""

from __future__ import annotations

import logging
import re
from functools import partial

import pytest

from benchmax import (
    BaseEnv,
    EnvHost,
    RolloutSettings,
    ScriptedModel,
    evaluate,
    load_examples,
    run_batch,
    run_group,
    run_rollout,
    validate_env,
)
from benchmax.envs.composed import compose
from benchmax.errors import EnvDefinitionError, UsageError

ROWS = [{"prompt": "hi", "ground_truth": "x"}]


class Scored(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": 1.0}


class Unwritten(BaseEnv):
    async def compute_rewards(self, rollout_id, messages, task, **kwargs):
        return {"correct": 1.0}


class Sized(Scored):
    def __init__(self, size, shape="round", *, colour):
        self.size = size


class Numbered(Scored):
    system_prompt = 7


def made(size):
    return Sized(size, colour="red")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Unwritten, r"Unwritten does not implement compute_reward\. Rename compute_rewards to compute_reward\."),
        (Sized, r"Sized needs the argument 'size'\. .*EnvHost\(lambda: Sized\(size=…, colour=…\)\)\."),
        (made, r"made needs the argument 'size'\. Give an instance"),
        (
            "arithmetic",
            r"takes no name, and was given 'arithmetic'\. Load its class first: .*benchmax\.envs\.loading\.",
        ),
        (7, r"EnvHost was given a int\. Give an environment, its class, or a function that makes one\."),
        (None, r"EnvHost was given a NoneType\. Give an environment"),
    ],
)
def test_a_host_says_at_once_what_it_cannot_hold(given, sentence):
    with pytest.raises(EnvDefinitionError, match=sentence):
        EnvHost(given)


async def test_a_maker_with_its_arguments_is_taken():
    async with EnvHost(partial(made, 3)) as host:
        assert host.env.size == 3


@pytest.mark.parametrize("env", [Numbered, Numbered(), compose(other=Numbered, one=Scored)])
async def test_a_system_prompt_that_is_no_text(env):
    host = EnvHost(env)
    with pytest.raises(EnvDefinitionError, match=r"is 7, which is no text\. Write it as a text in quotes\."):
        await host.__aenter__()
    assert not host.is_open


async def test_what_cannot_be_played_is_refused_by_every_function():
    example, model = load_examples(ROWS, Scored)[0], ScriptedModel("x")
    async with EnvHost(Scored) as host:
        wrong = [
            ((Scored, example, model), "host is the class Scored. Give an open EnvHost"),
            ((EnvHost(Scored), example, model), "This EnvHost is not open. Play inside"),
            (
                (host, ROWS[0], model),
                "a dict with prompt, ground_truth; an example has an id and prompt_messages. Turn",
            ),
            ((host, example, "gpt"), "model is a str. Give a ModelClient"),
            ((host, example, model, {"max_turns": 3}), "settings is a dict. Give a RolloutSettings"),
        ]
        for (host_, one, *rest), sentence in wrong:
            for play in (
                run_rollout(host_, one, *rest), run_group(host_, one, *rest, samples=[0]),
                run_batch(host_, [one], *rest), evaluate(host_, [one], *rest),
            ):  # fmt: skip
                with pytest.raises(UsageError, match=re.escape(sentence)):
                    await play
        with pytest.raises(UsageError, match=r"examples is a dict\. Give a list of examples"):
            await evaluate(host, example, model)


@pytest.mark.parametrize("given", ["arithmetic", 7, int])
def test_rows_and_checks_need_an_environment_class(given):
    with pytest.raises(EnvDefinitionError, match=r"by an environment class, and .* is none\. Give the class; load_env"):
        load_examples(ROWS, given)
    with pytest.raises(EnvDefinitionError, match=r"takes an environment class, and .* is none\. Give the class, and"):
        validate_env(given, {}, ROWS)


async def played(env, settings=RolloutSettings(), samples=(0,)):
    async with EnvHost(env) as host:
        return await run_group(host, load_examples(ROWS, Scored)[0], ScriptedModel("x"), settings, samples=samples)


class Weighted(Scored):
    reward_weights = {"corect": 2.0, "correct": 0.5}


async def test_a_weight_for_a_component_that_nothing_has_is_told_once(caplog):
    with caplog.at_level(logging.WARNING):
        rollouts = await played(Weighted, samples=[0, 1])
    assert [rollout.reward for rollout in rollouts] == [0.5, 0.5]
    assert [record.getMessage() for record in caplog.records] == [
        "Weighted weights 'corect', a component that no rollout had. Did you mean 'correct'? Correct reward_weights, "
        "or take it out."
    ]
    caplog.clear()
    await played(Scored, RolloutSettings(weights={"brief": 1.0}))
    assert (
        "weights 'brief', a component that no rollout had. The components are: correct. Correct reward_weights"
        in caplog.text
    )


async def test_one_rollout_alone_tells_it_too(caplog):
    async with EnvHost(Weighted) as host:
        await run_rollout(host, load_examples(ROWS, Scored)[0], ScriptedModel("x"))
        assert caplog.text == ""
    assert "Weighted weights 'corect'" in caplog.text


async def test_a_weight_for_what_only_some_have_is_fine(caplog):
    class Now(Scored):
        reward_weights = {"early": 2.0, "best": 1.0}
        first = True

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            early, self.first = self.first, False
            return {"correct": 1.0, "early": 1.0} if early else {"correct": 1.0}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
            return [{"best": 1.0} for _ in rollout_ids]

    rollouts = await played(Now, samples=[0, 1])
    assert sorted(rollout.reward for rollout in rollouts) == [2.0, 4.0]
    assert caplog.text == ""


class Fragile(Scored):
    async def init_rollout(self, rollout_id, **rollout_args):
        self.prepare(rollout_args)

    def prepare(self, rollout_args):
        if "broken" in rollout_args:
            raise OSError("no disk")

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(task["lenght"])}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, r"'lenght' \(at test_env_mistakes\.py:\d+, in compute_reward\)"),
        ({"init_rollout_args": {"broken": 1}}, r"no disk \(at test_env_mistakes\.py:\d+, in prepare\)"),
    ],
)
async def test_a_failure_names_the_line_of_the_environment(row, said):
    async with EnvHost(Fragile) as host:
        rollout = await run_rollout(host, load_examples([ROWS[0] | row], Fragile)[0], ScriptedModel("x"))
    assert re.fullmatch(said, rollout.error.message)
    assert not rollout.unscored or re.fullmatch(f"KeyError: {said}", rollout.unscored["reward"])
