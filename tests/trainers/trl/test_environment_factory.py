"""TRL's own loop with our tools: `environment_factory`. Generation is scripted, all else is TRL's."""

from __future__ import annotations

import pytest
from trl import GRPOTrainer
from trl_world import QWEN3, arguments, model

from benchmax.adapters.trl.environments import BenchmaxEnvironments
from benchmax.envs.types import ToolDefinition
from benchmax.errors import UsageError
from trainer_world import RankedSumEnv, SumEnv, _call, tokenizer

ROW = {"prompt": "What is 2 + 2?", "ground_truth": "4"}
WRONG = '<tool_call>\n{"name": "add", "arguments": {"a": "two", "b": 2}}\n</tool_call>'
TURNS = [[f"{_call(1, 2)}\n{_call(2, 2)}", "4"], [WRONG, "twenty"], ["4"], ["?"]]
"""What each of four rollouts says, turn by turn."""


class Counting(SumEnv):
    begun: list[str] = []
    released: list[str] = []

    async def init_rollout(self, rollout_id, **kwargs):
        self.begun.append(rollout_id)

    async def release_rollout(self, rollout_id):
        self.released.append(rollout_id)


@pytest.fixture
def played(tmp_path):
    opened = []

    def play(env, turns):
        encode, simple = tokenizer(QWEN3), BenchmaxEnvironments(env, [ROW])
        opened.append(simple)
        trainer = GRPOTrainer(
            model=model(encode), args=arguments(tmp_path, max_completion_length=3000), processing_class=encode,
            train_dataset=simple.dataset(), environment_factory=simple.environment_class(), reward_funcs=simple.reward,
        )  # fmt: skip
        waiting = [list(each) for each in turns]

        def scripted(prompt_ids, *given, **options):
            speakers = [each for each in waiting if each][: len(prompt_ids)]
            texts = [each.pop(0) for each in speakers]
            return [[*encode(text)["input_ids"], encode.eos_token_id] for text in texts], None

        trainer._generate_single_turn = scripted
        rows = [dict(simple.dataset()[0]) for _ in turns]
        given = trainer._generate_and_score_completions(rows)
        return trainer, given, trainer.environments

    yield play
    for simple in opened:
        simple.close()


def test_tools_run_and_the_environment_scores(played):
    Counting.begun, Counting.released = [], []
    _, given, environments = played(Counting, TURNS)
    rollouts = [each._rollout for each in environments]
    assert [rollout.reward for rollout in rollouts] == [1.25, 0.0, 1.25, None]
    said = [[m["content"] for m in rollout.messages if m["role"] == "tool"] for rollout in rollouts]
    assert said[0] == ["3", "4"]
    assert "Wrong arguments for add" in said[1][0]
    assert said[2:] == [[], []]
    assert [[(event.turn, event.ok) for event in rollout.tool_events] for rollout in rollouts] == [
        [(1, True), (1, True)], [(1, False)], [], []
    ]  # fmt: skip
    assert [rollout.turns for rollout in rollouts] == [2, 2, 1, 1]
    assert given["advantages"][3] == 0.0  # TRL leaves out what could not be scored
    assert given["tool_mask"].eq(0).any()
    assert sorted(Counting.begun) == sorted(Counting.released)
    assert len(set(Counting.begun)) == 4


def test_siblings_are_scored_together(played):
    _, _, environments = played(RankedSumEnv, [["4"], ["four"], ["4"], ["twenty"]])
    assert [each._rollout.reward for each in environments] == [1.25, 0.0, 1.25, 0.5]


def test_objects_are_used_again_for_the_next_batch(played):
    trainer, _, first = played(Counting, TURNS)
    rows = [dict(trainer.train_dataset[0]) for _ in TURNS]
    trainer._generate_single_turn = lambda prompt_ids, *given: (
        [[70, trainer.eos_token_ids[0]] for _ in prompt_ids],
        None,
    )
    ids = {each._rollout.id for each in first}
    trainer._generate_and_score_completions(rows)
    assert trainer.environments == first
    assert not ids & {each._rollout.id for each in trainer.environments}


@pytest.mark.parametrize(
    ("tool", "argument", "says"),
    [
        ("add-two", "a", "The tool 'add-two' cannot be a method's name"),
        ("reset", "a", "The tool 'reset' cannot be a method's name"),
        ("get_reward", "a", "The tool 'get_reward' cannot be a method's name"),
        ("send", "from", "The argument 'from' of the tool 'send' cannot be a parameter's name"),
        ("search", "max-results", "The argument 'max-results' of the tool 'search' cannot be a parameter's name"),
    ],
)
def test_a_tool_that_cannot_be_a_method_is_refused(tool, argument, says):
    class Odd(SumEnv):
        async def list_tools(self):
            return [ToolDefinition(tool, "Add.", {"type": "object", "properties": {argument: {"type": "string"}}})]

    simple = BenchmaxEnvironments(Odd, [ROW])
    with pytest.raises(UsageError, match=f"{says}.*BenchmaxRollouts"):
        simple.environment_class()
    simple.close()
