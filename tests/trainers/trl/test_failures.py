"""Groups in which rollouts fail, in TRL's own trainer: all of them come back, with our reasons."""

from __future__ import annotations

import pytest
import torch
from trl import GRPOTrainer
from trl_world import QWEN3, arguments, model

from benchmax.adapters.engine_model import Ask, Drawn
from benchmax.adapters.trl.environments import BenchmaxEnvironments
from benchmax.adapters.trl.rollouts import REWARD, TERMINATION, BenchmaxRollouts
from benchmax.envs.types import ToolResult
from benchmax.errors import EnvLost
from trainer_failures import COUNT, FINISHES, GROUP, LONG, OVERFLOWS, RAISES, RECALLS, ROUGH, Actor, RoughEnv, repeat
from trainer_world import tokenizer

NOBODY = ("said to nobody",)
"""What TRL's own loop has the model say in a rollout that could not begin."""


def trainer_of(encode, folder, count, *, turns=9, **given):
    args = arguments(
        folder, num_generations=count, per_device_train_batch_size=count, max_completion_length=LONG,
        max_tool_calling_iterations=turns,
    )  # fmt: skip
    return GRPOTrainer(model=model(encode), args=args, processing_class=encode, **given)


def test_a_group_in_which_everything_happens_comes_back_whole(tmp_path):
    RoughEnv.start_anew()
    actor, encode = Actor(ROUGH.template), tokenizer(ROUGH.template)

    async def sample(ask: Ask) -> Drawn:
        return Drawn(*actor.next_turn(ask.prompt))

    rollouts = BenchmaxRollouts(RoughEnv, [ROUGH.row], sample=sample)
    dataset = rollouts.dataset()
    trainer = trainer_of(
        encode, tmp_path, COUNT, train_dataset=dataset, rollout_func=rollouts, reward_funcs=rollouts.reward
    )
    rows = [dict(dataset[0]) for _ in range(COUNT)]
    given = trainer._generate_and_score_completions(rows)
    rollouts.close()
    assert sorted(((row[TERMINATION], row[REWARD]) for row in rows), key=str) == GROUP
    learned = given["tool_mask"] * given["completion_mask"]
    for row, advantage, mask in zip(rows, given["advantages"], learned, strict=True):
        assert torch.isfinite(advantage)
        assert bool(mask.any()) == bool(advantage) == (row[REWARD] is not None)
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)


@pytest.fixture
def play(tmp_path):
    """A group in TRL's own loop; the engine is TRL's, too, so it does not die here."""
    opened = []

    def run(env, conversations, **more):
        env.start_anew()
        simple = BenchmaxEnvironments(env, [ROUGH.row])
        opened.append(simple)
        actor, encode = Actor(QWEN3, conversations), tokenizer(QWEN3)
        trainer = trainer_of(
            encode, tmp_path, len(conversations), train_dataset=simple.dataset(),
            environment_factory=simple.environment_class(), reward_funcs=simple.reward, **more,
        )  # fmt: skip
        trainer._generate_single_turn = lambda prompts, *given, **options: (
            [actor.next_turn(prompt)[0] for prompt in prompts],
            None,
        )
        given = trainer._generate_and_score_completions([dict(simple.dataset()[0]) for _ in conversations])
        return [each._rollout for each in trainer.environments], given, trainer._metrics["train"]

    yield run
    for simple in opened:
        simple.close()


def test_its_own_loop_brings_the_group_back_whole(play):
    rollouts, given, metrics = play(RoughEnv, [FINISHES, NOBODY, RECALLS, RAISES, OVERFLOWS])
    found = sorted(((rollout.termination.value, rollout.reward) for rollout in rollouts), key=str)
    assert found == [each for each in GROUP if each[0] != "model_error"]
    for rollout, advantage in zip(rollouts, given["advantages"], strict=True):
        assert bool(advantage) == (rollout.reward is not None)
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)
    assert metrics["benchmax/ended/context_exceeded"] == [pytest.approx(0.2)]
    assert metrics["benchmax/tool_calls"] == [pytest.approx(3 / 5)]


class LosesItsServer(RoughEnv):
    async def init_rollout(self, rollout_id, **kwargs):
        self.begun.append(rollout_id)

    async def run_tool(self, rollout_id, tool_name, **arguments):
        raise EnvLost("The server of this rollout is gone.")


def test_a_server_that_is_lost_ends_its_rollout(play):
    rollouts, _, _ = play(LosesItsServer, [(repeat("a", 1), "all is well"), ("no tool",)])
    assert [(rollout.termination.value, rollout.reward) for rollout in rollouts] == [
        ("env_error", None),
        ("finished", 1.5),
    ]
    assert "is gone" in rollouts[0].error.message


class Refuses(RoughEnv):
    async def init_rollout(self, rollout_id, **kwargs):
        self.begun.append(rollout_id)

    async def run_tool(self, rollout_id, tool_name, **arguments):
        return ToolResult("not today", is_error=True)


def test_a_tool_that_says_no_is_told_and_counted(play):
    rollouts, _, _ = play(Refuses, [(repeat("a", 1), "no, then"), ("no tool",)])
    assert [(event.turn, event.ok) for event in rollouts[0].tool_events] == [(1, False)]
    assert [message["content"] for message in rollouts[0].messages if message["role"] == "tool"] == ["not today"]
    assert rollouts[0].reward == 1.5


def test_turns_that_trl_does_not_grant_are_no_end_of_the_models(play):
    rollouts, _, _ = play(RoughEnv, [(repeat("a", 1), repeat("b", 1)), NOBODY], turns=1)
    assert [rollout.termination.value for rollout in rollouts] == ["max_turns_exceeded", "env_error"]
