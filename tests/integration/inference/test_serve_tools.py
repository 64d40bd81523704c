"""A model that really calls a tool, served to the official client: fitted in seconds to one short conversation."""

from __future__ import annotations

import json

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmax.envs.types import ToolDefinition
from benchmax.inference.local_model import LocalModel
from benchmax.inference.server.serve import start
from benchmax.inference.tokens.chat import ChatTokens, parse_reply
from benchmax.trainer.tiny_model import make_tiny

torch.set_num_threads(1)  # the model is tiny

ASK = [{"role": "user", "content": "7*8?"}]
FUNCTION = {"name": "mul", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = 'I ask.\n<tool_call>{"name": "mul", "arguments": {"a": 7, "b": 8}}</tool_call>[e]'
ANSWER = "It is 56.[e]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Asked with the tool it calls it, and answers with what the tool said."""
    folder = make_tiny(tmp_path_factory.mktemp("model"), hidden=64, layers=2, context=2048)
    chat, tools = ChatTokens(folder), [ToolDefinition("mul", "", FUNCTION["parameters"])]
    called = parse_reply(CALL.removesuffix("[e]"), tools=True)
    result = {"role": "tool", "content": "56", "tool_call_id": called["tool_calls"][0]["id"]}
    segments = [
        chat.prompt(ASK, tools),
        chat.encode(CALL),
        chat.delta([*ASK, called], [result], tools, prompt_turns=1, stopped=True),
        chat.encode(ANSWER),
    ]
    ids = torch.tensor([[token for segment in segments for token in segment]])
    labels = torch.tensor([[token if i % 2 else -100 for i, segment in enumerate(segments) for token in segment]])
    model = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 1e-2:
            break
    assert loss.item() < 1e-2, "the model has learned its conversation"
    model.save_pretrained(folder)
    return folder


@pytest.fixture
async def client(folder):
    async with LocalModel.load(folder, device="cpu", name="caller") as model:
        runner, port = await start(model, port=0)
        try:
            async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
                yield client
        finally:
            await runner.cleanup()


def request(messages, **more):
    return {"model": "caller", "messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 120, **more}


async def test_a_tool_is_called_and_its_answer_used(client):
    first = (await client.chat.completions.create(**request(ASK))).choices[0]
    (call,) = first.message.tool_calls
    assert (first.finish_reason, first.message.content) == ("tool_calls", "I ask.")
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "mul", {"a": 7, "b": 8})
    result = {"role": "tool", "content": "56", "tool_call_id": call.id}
    second = await client.chat.completions.create(**request([*ASK, first.message.to_dict(), result]))
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("It is 56.", "stop")


async def test_a_call_in_a_stream(client):
    whole = (await client.chat.completions.create(**request(ASK))).choices[0].message
    choices = [chunk.choices[0] async for chunk in await client.chat.completions.create(**request(ASK, stream=True))]
    (call,) = [call for choice in choices for call in choice.delta.tool_calls or ()]
    assert "".join(choice.delta.content or "" for choice in choices) == "I ask."
    assert (call.index, call.id, call.function.name) == (0, whole.tool_calls[0].id, "mul")
    assert call.function.arguments == whole.tool_calls[0].function.arguments
    assert choices[-1].finish_reason == "tool_calls"
