"""The warm start: rows are shown as rollouts ask them, and every row that cannot be shown is named."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import load_examples
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ToolDefinition
from benchmax.errors import DatasetError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer import start
from benchmax.trainer.config import SftConfig, build_config
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.tiny_model import make_tiny
from benchmax.trainer.warm_start import warm_start
from benchmax.trainer.warm_start.sft_rows import PromptContext, sft_sequences
from benchmax.trainer.warm_start.supervised_steps import train_epochs

torch.set_num_threads(1)  # the models are tiny

PEEK = ToolDefinition("peek", "Look into a box.", {"type": "object", "properties": {"box": {"type": "integer"}}})
CALL = {"id": "1", "type": "function", "function": {"name": "peek", "arguments": '{"box": 1}'}}
SYSTEM = "Answer with a digit."


class BoxEnv(BaseEnv):
    """Everything an environment puts around a row."""

    system_prompt = SYSTEM

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return make_example([{"role": "user", "content": f"Box {example['box']}?"}], {"box": example["box"]})

    async def list_tools(self):
        return [PEEK]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return "a cat"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"length": float(len(messages))}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2, context=1024)


@pytest.fixture(scope="module")
def chat(model):
    return ChatTokens(model)


@pytest.fixture
async def scene():
    async with EnvHost(BoxEnv) as host:
        yield await PromptContext.of(host)


def write(file, rows):
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(file)


def settings(model, folder, **tree):
    return build_config({
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "rollouts": {"prompts_per_step": 16, "group_size": 2, "max_new_tokens": 4, "max_extra_groups": 0},
        "limits": {"steps": 1},
        "recipe": "plain",
        "output": {"dir": str(folder), "name": "run", "save_tokens": True},
        **tree,
    })  # fmt: skip


def asked_and_said(chat, sequence):
    """A sequence's prompt and answer, control tokens spelled out."""
    first = int(sequence.targets[0])
    return chat.spell(sequence.ids[:first].tolist()), chat.spell(sequence.ids[first:].tolist())


def test_a_row_is_shown_under_the_very_prompt_its_rollouts_have(model, tmp_path, monkeypatch):
    rows = [{"box": number, "completion": str(number)} for number in range(16)]
    shown: list[list[int]] = []

    def remember(learner, sequences, *arguments, **options):
        shown.extend(sequence.ids[: sequence.targets[0]].tolist() for sequence in sequences)
        return train_epochs(learner, sequences, *arguments, **options)

    monkeypatch.setattr(warm_start, "train_epochs", remember)
    config = settings(model, tmp_path, sft={"data": write(tmp_path / "sft.jsonl", rows)})
    done = asyncio.run(start.train(config, task=start.Task(BoxEnv, list(load_examples(rows, BoxEnv)), [])))
    played = {tuple(each.tokens[0].ids) for each in read_rollouts(done.path / "rollouts" / "train-0.jsonl")}
    assert played == set(map(tuple, shown))
    assert len(played) == 16
    text = ChatTokens(model).spell(shown[0])
    assert all(part in text for part in (SYSTEM, "peek", "Box 0?"))


async def test_chats_stay_as_given_with_the_tools(chat, scene):
    notes: list[str] = []
    asks, looks = {"role": "user", "content": "Box 1?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}
    sees, says = {"role": "tool", "tool_call_id": "1", "content": "a cat"}, {"role": "assistant", "content": "cat"}
    rows = [
        {"messages": [asks, looks]},
        {"messages": [{"role": "system", "content": "Mine."}, asks, looks, sees, says]},
    ]
    calls, answers = sft_sequences(rows, chat, scene, on_note=notes.append)
    asked, said = asked_and_said(chat, calls)
    assert "peek" in asked
    assert SYSTEM not in asked
    assert said.startswith("<tool_call>")
    assert '"box": 1' in said
    asked, said = asked_and_said(chat, answers)
    assert all(part in asked for part in ("Mine.", "Look into a box."))
    end = chat.spell([chat.stop_ids[0]])
    learned = chat.spell(answers.ids[answers.targets].tolist())
    assert learned == said.split(end)[0] + end + "cat" + end, "every turn of the assistant, and nothing else"
    assert "a cat" in said
    assert len(notes) == 1
    assert "1 of 2 rows of rows are `messages` without a system message" in notes[0]


async def test_a_row_the_environment_cannot_read_is_told_what_to_give(chat, scene):
    with pytest.raises(
        DatasetError, match=r"rows:1: .*KeyError\('box'\).*prompt, completion → give the columns it reads"
    ):
        sft_sequences([{"prompt": "Box 1?", "completion": "1"}], chat, scene)


def test_a_chat_is_shown_the_tools_it_was_held_with(chat):
    turns = [{"role": "user", "content": "Box 1?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    tool = {"type": "function", "function": {"name": "peek", "description": "Look into it.", "parameters": {}}}
    (own,) = sft_sequences([{"messages": turns, "tools": [tool], "metadata": {"n": 1}}], chat)
    assert "Look into it." in asked_and_said(chat, own)[0]
    with pytest.raises(DatasetError, match="rows:1: tools: has an entry without a function's name → write"):
        sft_sequences([{"messages": turns, "tools": [{"type": "function"}]}], chat)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (5, "is a number, not a list"),
        ({"name": "peek"}, "is an object, not a list"),
        ([{"name": "peek", "parameters": "x"}], "has parameters of peek that are no JSON Schema"),
        ([{"name": "peek", "parameters": {"required": 5}}], "has parameters of peek that are no JSON Schema"),
    ],
)
def test_tools_that_are_none_are_named_with_their_row(chat, tools, said):
    turns = [{"role": "user", "content": "Box 1?"}, {"role": "assistant", "content": "1"}]
    with pytest.raises(DatasetError, match=f"rows:1: tools: {said}"):
        sft_sequences([{"messages": turns, "tools": tools}], chat)


def test_without_an_environment_the_prompt_is_all_there_is(chat):
    rows = [{"prompt": "1?", "completion": 5}, {"prompt": [{"role": "user", "content": "1?"}], "ground_truth": "5"}]
    first, second = sft_sequences(rows, chat)
    assert first.ids.tolist() == second.ids.tolist()
    assert asked_and_said(chat, first)[1].startswith("5")


LONG = {"prompt": "x" * 1100, "completion": "1"}
UNUSABLE = [
    ("{oops", r":2: char 2: not JSON: .* → write one whole JSON object on each line"),
    ("[1, 2]", r":2: the row is a list, not an object → write \{"),
    ({}, r":2: the row has neither prompt nor messages"),
    ({"prompt": "x"}, r":2: the row has neither `messages` nor a `completion` to learn → write \{"),
    ({"prompt": 5, "completion": "x"}, r":2: prompt: is a number, not text"),
    ({"prompt": "x", "completion": [1]}, r":2: completion: is a list, not text"),
    ({"messages": "hello"}, r":2: messages: is text, not a list"),
    ({"messages": [1]}, r":2: messages\[0\]: is a number, not a message"),
    ({"messages": [{"role": "bogus", "content": "x"}]}, r":2: messages\[0\]\.role: is 'bogus'"),
    ({"messages": [{"role": "user", "content": "x"}]}, r":2: messages: does not end with an assistant turn"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, r":2: messages: does not end with an assistant turn"),
    (LONG, r":2: has 1,1\d\d tokens with its answer; the model takes 1,024 → shorten it"),
]


@pytest.mark.parametrize(("row", "says"), UNUSABLE)
def test_a_row_that_cannot_be_used_is_told_with_its_line_the_reason_and_what_to_do(row, says, chat, tmp_path):
    file = write(tmp_path / "sft.jsonl", [{"prompt": "1?", "completion": "1"}, row])
    with pytest.raises(DatasetError, match=rf"(?s)1 of 2 rows of {file} cannot be used:.*sft\.jsonl{says}"):
        sft_sequences(file, chat)
    notes: list[str] = []
    assert len(sft_sequences(file, chat, lenient=True, on_note=notes.append)) == 1
    assert notes == [f"1 of 2 rows of {file} cannot be used: left out."]


def test_rows_left_out_are_noted_in_the_run(model, tmp_path):
    rows = [{"box": number, "completion": str(number)} for number in range(16)]
    examples = list(load_examples(rows, BoxEnv))
    tree = {"sft": {"data": write(tmp_path / "sft.jsonl", [*rows, "{oops"])}}
    with pytest.raises(DatasetError, match=r"sft\.jsonl:17: char 2"):
        asyncio.run(start.train(settings(model, tmp_path, **tree), task=start.Task(BoxEnv, examples, [])))
    config = settings(model, tmp_path, data={"lenient": True}, **tree)
    path = asyncio.run(start.train(config, task=start.Task(BoxEnv, examples, []))).path
    assert "1 of 17 rows of" in (path / "events.jsonl").read_text()


def test_the_model_learns_what_it_is_shown(chat, tmp_path):
    rows = [{"prompt": f"{i}?", "completion": str(i)} for i in range(10)]
    policy = Policy.from_directory(make_tiny(tmp_path), tune="full")
    stage = SftConfig(epochs=200, batch=10, lr=3e-3)
    losses = train_epochs(Learner(policy, build_config({})), sft_sequences(rows, chat), stage)
    assert losses[-1] < 0.1 < losses[0]
    prompt = torch.tensor([chat.prompt([{"role": "user", "content": "7?"}])])
    assert chat.decode(policy.model(prompt).logits[0, -1:].argmax(-1).tolist()) == "7"
