"""One truth: our own trainer, and the core of every adapter, receive the scripted tokens exactly."""

from __future__ import annotations

import asyncio

import pytest

from benchmax import limits
from benchmax.adapters.batches import FailedBatches, play_batch, summary
from benchmax.adapters.engine_model import Ask, Drawn, EngineModel
from benchmax.adapters.trajectory import steps_of, trajectory_of
from benchmax.errors import ContextExceeded, RolloutError
from benchmax.inference.local_model import LocalModel
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Sampling
from benchmax.rollouts import EnvHost, RolloutSettings, run_group
from benchmax.trainer.learning.advantage import AdvantageRule, assign_advantages
from benchmax.trainer.learning.batch import sequence_of
from trainer_failures import GROUP, LONG, ROUGH, Actor, RoughEnv, ended
from trainer_world import CASES, Case, Script, SumEnv, expected, tokenizer

ids = pytest.mark.parametrize("case", CASES, ids=str)


def settings(case: Case) -> RolloutSettings:
    return RolloutSettings(max_turns=case.max_turns, sampling=Sampling(max_tokens=400, logprobs=True))


class ScriptedEngine:
    """The engine of this process, as far as LocalModel knows it."""

    max_len = 2**20

    def __init__(self, script: Script) -> None:
        self.script = script

    async def generate(self, prompt, params, **options):
        drawn, logprobs = self.script.next_turn(prompt)
        return Drawn(drawn, logprobs, "stop")


@ids
async def test_our_own_trainer_receives_the_truth(case):
    chat = ChatTokens.of_tokenizer(tokenizer(case.template))
    model = LocalModel(ScriptedEngine(Script([case])), chat)
    async with EnvHost(case.env) as host:
        group = await run_group(host, case.example, model, settings(case), samples=range(len(case.samples)))
    assign_advantages(group, AdvantageRule(min_scored=0.5))
    group.sort(key=lambda rollout: sequence_of(rollout).ids[len(rollout.tokens[0].ids) :].tolist())
    for rollout, truth in zip(group, expected(case), strict=True):
        sequence, first = sequence_of(rollout), len(truth.prompt_ids)
        assert sequence.ids.tolist() == truth.prompt_ids + truth.response_ids
        assert [rollout.reward, rollout.termination] == [truth.reward, truth.ends]
        assert sequence.advantage == pytest.approx(truth.advantage)
        sampled = [first + place for start, end in truth.steps for place in range(start, end)]
        assert sequence.targets.tolist() == sampled
        assert sequence.logprobs.tolist() == pytest.approx([truth.logprobs[place - first] for place in sampled])


async def play(case: Case, sample, rows: int | None = None, **options):
    """The rows of a case through the core, with `sample` as the trainer's engine."""
    chat = ChatTokens.of_tokenizer(tokenizer(case.template))
    model = EngineModel(chat, sample, name="outside", **options)
    async with EnvHost(case.env) as host:
        played = await play_batch(host, [case.example] * (rows or len(case.samples)), model, settings(case))
    return [trajectory_of(rollout, chat) for rollout in played]


def scripted(case: Case):
    script = Script([case])

    async def sample(ask: Ask) -> Drawn:
        return Drawn(*script.next_turn(ask.prompt))

    return sample


@ids
async def test_the_core_of_every_adapter_returns_the_truth(case):
    found = sorted(await play(case, scripted(case)), key=lambda each: each.response_ids)
    for trajectory, truth in zip(found, expected(case), strict=True):
        assert trajectory.prompt_ids == truth.prompt_ids
        assert trajectory.response_ids == truth.response_ids
        assert trajectory.mask == truth.mask
        assert trajectory.logprobs == pytest.approx(truth.logprobs)
        assert trajectory.token_rewards == truth.token_rewards
        assert [trajectory.reward, trajectory.stop_reason] == [truth.reward, truth.ends]


@ids
async def test_steps_are_the_turns_with_all_before_them(case):
    found = sorted(await play(case, scripted(case)), key=lambda each: each.response_ids)
    for trajectory, truth in zip(found, expected(case), strict=True):
        steps = steps_of(trajectory)
        assert [step.last for step in steps] == [False] * (len(truth.steps) - 1) + [True]
        for step, (start, end) in zip(steps, truth.steps, strict=True):
            assert step.prompt_ids == truth.prompt_ids + truth.response_ids[:start]
            assert step.response_ids == truth.response_ids[start:end]
            assert step.logprobs == pytest.approx(truth.logprobs[start:end])
        assert sum(sum(step.token_rewards) for step in steps) == (truth.reward or 0.0)


TOOLS = next(case for case in CASES if case.name == "tools")


async def test_an_engine_that_dies_fails_its_rollout_and_no_sibling():
    healthy = scripted(TOOLS)

    async def sample(ask: Ask) -> Drawn:
        drawn = await healthy(ask)
        if len(ask.prompt) > 400 and drawn.ids[0] == ord("5") - ord("!") + 5:  # the last turn of one of them
            raise ConnectionError("engine 3 is gone")
        return drawn

    found = await play(TOOLS, sample)
    assert sorted(each.stop_reason for each in found) == ["finished", "finished", "finished", "model_error"]
    (lost,) = (each for each in found if not each.scored)
    assert lost.rollout.error.message.startswith("The engine of outside failed: ConnectionError: engine 3 is gone")
    assert lost.reward is None
    assert not any(lost.mask)
    assert len(lost.response_ids) == len(lost.mask) == len(lost.logprobs) > 1


async def test_an_engine_that_never_answers_leaves_whole_groups_without_reward():
    async def sample(ask: Ask) -> Drawn:
        raise RuntimeError("no GPU left")

    found = await play(TOOLS, sample)
    assert len(found) == len(TOOLS.samples)
    assert {each.stop_reason for each in found} == {"model_error"}
    assert all(each.mask == [0] and each.logprobs == [0.0] and each.token_rewards == [0.0] for each in found)
    assert all(len(each.prompt_ids) > 20 for each in found)
    assert summary([each.rollout for each in found])["benchmax/ended/model_error"] == 1.0


@pytest.mark.parametrize("raised", [ContextExceeded("full"), ValueError("prompt is too long: 9000 tokens")])
async def test_a_context_that_overflows_is_told_from_a_failure(raised):
    healthy = scripted(TOOLS)

    async def sample(ask: Ask) -> Drawn:
        drawn = await healthy(ask)
        if drawn.ids[0] == ord("4") - ord("!") + 5:
            raise raised
        return drawn

    ended = sorted(each.stop_reason for each in await play(TOOLS, sample))
    assert ended == ["context_exceeded", "context_exceeded", "finished", "finished"]


async def test_the_response_stays_within_the_trainers_limit():
    most = 150
    asked: list[int] = []
    healthy = scripted(TOOLS)

    async def sample(ask: Ask) -> Drawn:
        asked.append(most_tokens := ask.sampling.max_tokens)
        drawn = await healthy(ask)
        cut = len(drawn.ids) > most_tokens
        return Drawn(drawn.ids[:most_tokens], drawn.logprobs[:most_tokens], "length" if cut else "stop")

    found = await play(TOOLS, sample, max_response=most)
    assert all(len(each.response_ids) <= most for each in found)
    assert max(asked) == most
    assert min(asked) < most
    assert {"context_exceeded", "finished"} == {each.stop_reason for each in found}


class Broken(SumEnv):
    async def init_rollout(self, rollout_id, **kwargs):
        raise RuntimeError("no seat")


async def test_a_group_that_cannot_begin_comes_back_whole():
    case = TOOLS
    chat = ChatTokens.of_tokenizer(tokenizer(case.template))
    model = EngineModel(chat, scripted(case), name="outside")
    async with EnvHost(Broken) as host:
        played = await play_batch(host, [case.example] * 3, model, settings(case))
    assert [rollout.termination for rollout in played] == ["env_error"] * 3


async def test_a_group_in_which_everything_happens_comes_back_whole():
    RoughEnv.start_anew()
    actor = Actor(ROUGH.template)

    async def sample(ask: Ask) -> Drawn:
        return Drawn(*actor.next_turn(ask.prompt))

    found = await play(ROUGH, sample, max_response=LONG)
    assert ended(each.rollout for each in found) == GROUP
    for each in found:
        assert any(each.mask) == each.scored == (each.reward is not None)
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)


async def test_batches_that_nobody_can_score_are_raised_in_the_end():
    case = next(case for case in CASES if case.name == "unscored")
    chat = ChatTokens.of_tokenizer(tokenizer(case.template))

    async def sample(ask: Ask) -> Drawn:
        return Drawn([*chat.encode("?"), *chat.end_of_turn[:1]], None)

    unjudged = [each.rollout for each in await play(case, sample, rows=2)]
    assert [rollout.error for rollout in unjudged] == [None, None]
    batches = FailedBatches()
    for _ in range(limits.FAILED_BATCHES - 1):
        batches.observe(unjudged)
    with pytest.raises(RolloutError, match=r"no rollout with a reward\. 2 of 2 .*the judge was out"):
        batches.observe(unjudged)


async def test_turns_of_one_conversation_share_a_session_and_all_run_at_once():
    sessions: dict[str, int] = {}
    together, waiting = asyncio.Event(), 0
    healthy = scripted(TOOLS)

    async def sample(ask: Ask) -> Drawn:
        nonlocal waiting
        sessions[ask.session] = sessions.get(ask.session, 0) + 1
        waiting += 1
        if waiting == len(TOOLS.samples):
            together.set()
        await asyncio.wait_for(together.wait(), 20)
        return await healthy(ask)

    await play(TOOLS, sample)
    assert sorted(sessions.values()) == [1, 2, 2, 3]
