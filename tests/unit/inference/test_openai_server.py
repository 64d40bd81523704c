from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import socket
import threading
import time
from contextlib import asynccontextmanager
from typing import get_type_hints

import aiohttp
import openai
import pytest
from fake_engine import FakeEngine
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from tiny_gguf import SPECIAL, write_gguf

from benchmax import limits
from benchmax.cli.local.serve import serve, split_checkpoint
from benchmax.envs.types import ToolDefinition
from benchmax.errors import ModelUnavailable, UsageError
from benchmax.inference.local_model import LocalModel
from benchmax.inference.server.openai_api import IGNORED, NEUTRAL, ChatRequest, CompletionRequest
from benchmax.inference.server.serve import Listener, check_port, start
from benchmax.inference.server.stream import TextStream
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.weights.gguf import convert
from benchmax.models.base import Sampling
from benchmax.models.http import HttpModel

ASK = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
FUSE = {"type": "Fuse"}
CALL = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "tiny").mkdir()
    convert(write_gguf(folder / "tiny.gguf"), folder / "tiny")
    return ChatTokens(folder / "tiny")


@asynccontextmanager
async def serving(chat, *scripts, engine=None, api_key=None):
    """A server whose model says the scripts, and the official client."""
    engine = engine or FakeEngine(*(s if isinstance(s, Exception) else chat.encode(s) for s in scripts))
    runner, port = await start(LocalModel(engine, chat, name="tiny"), port=0, api_key=api_key, aliases=("other-name",))
    client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=api_key or "none", max_retries=0)
    try:
        async with client:
            yield client, engine
    finally:
        await runner.cleanup()


async def test_chat(chat):
    async with serving(chat, "Hello!<|im_end|>") as (client, engine):
        reply = await client.chat.completions.create(
            model="tiny", messages=ASK, max_completion_tokens=20, temperature=0.5
        )
    assert reply.choices[0].message.content == "Hello!"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.prompt_tokens == len(engine.prompts[0])
    assert reply.usage.completion_tokens == len(chat.encode("Hello!<|im_end|>"))
    assert engine.prompts[0] == chat.prompt(ASK)
    assert (engine.params[0].max_tokens, engine.params[0].temperature) == (20, 0.5)


async def test_logprobs_and_token_ids(chat):
    async with serving(chat, "yes<|im_end|>") as (client, engine):
        reply = await client.chat.completions.create(
            model="tiny", messages=ASK, logprobs=True, top_logprobs=0, extra_body={"return_token_ids": True}
        )
    choice = reply.choices[0]
    assert [entry.token for entry in choice.logprobs.content] == ["y", "e", "s", "<|im_end|>"]
    assert [entry.logprob for entry in choice.logprobs.content] == [-0.5] * 4
    assert bytes(choice.logprobs.content[0].bytes) == b"y"
    assert choice.token_ids == chat.encode("yes<|im_end|>")
    assert reply.prompt_token_ids == engine.prompts[0]


async def test_choices_have_seeds_of_their_own(chat):
    async with serving(chat, "a<|im_end|>", "b<|im_end|>", "c<|im_end|>") as (client, engine):
        reply = await client.chat.completions.create(model="tiny", messages=ASK, n=3, seed=-5)
    assert [(choice.index, choice.message.content) for choice in reply.choices] == [(0, "a"), (1, "b"), (2, "c")]
    assert len({params.seed for params in engine.params}) == 3
    assert min(params.seed for params in engine.params) >= 0


async def test_stream(chat):
    async with serving(chat, "Grüße 日本 👩‍👧!<|im_end|>") as (client, _):
        stream = await client.chat.completions.create(
            model="tiny", messages=ASK, stream=True, stream_options={"include_usage": True}, logprobs=True
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Grüße 日本 👩‍👧!"
    assert not any("\ufffd" in (c.choices[0].delta.content or "") for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    tokens = [entry for c in chunks if c.choices and c.choices[0].logprobs for entry in c.choices[0].logprobs.content]
    assert chunks[-1].usage.completion_tokens == len(tokens) == len(chat.encode("Grüße 日本 👩‍👧!<|im_end|>"))
    assert len({c.id for c in chunks}) == 1
    assert {c.object for c in chunks} == {"chat.completion.chunk"}


async def test_the_stream_ends_with_done(chat):
    async with serving(chat, "ok<|im_end|>") as (client, _), aiohttp.ClientSession() as session:
        body = {"model": "tiny", "messages": ASK, "stream": True}
        async with session.post(f"{client.base_url}chat/completions", json=body) as response:
            assert response.content_type == "text/event-stream"
            lines = (await response.text()).strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    assert all(json.loads(line.removeprefix("data: "))["object"] for line in lines[:-1])


async def test_streams_of_several_choices_do_not_mix(chat):
    async with serving(chat, "aaaa<|im_end|>", "bbbb<|im_end|>") as (client, _):
        stream = await client.chat.completions.create(model="tiny", messages=ASK, n=2, stream=True)
        texts = {0: "", 1: ""}
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == {0: "aaaa", 1: "bbbb"}


async def test_tools(chat):
    async with serving(chat, f"I add.\n{CALL}<|im_end|>", "2<|im_end|>") as (client, engine):
        first = await client.chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)
        message = first.choices[0].message
        answer = {"role": "tool", "content": "2", "tool_call_id": message.tool_calls[0].id}
        history = [*ASK, message.to_dict(), answer]
        second = await client.chat.completions.create(
            model="tiny", messages=history, tools=TOOLS, extra_body={"return_token_ids": True}
        )
    assert first.choices[0].finish_reason == "tool_calls"
    assert message.content == "I add."
    assert json.loads(message.tool_calls[0].function.arguments) == {"a": 1}
    assert second.choices[0].message.content == "2"
    # The history came back as text, spelled otherwise than sampled; the tokens are still the sampled ones.
    sampled = chat.encode(f"I add.\n{CALL}<|im_end|>")
    known = [*engine.prompts[0], *sampled]
    assert engine.prompts[1][: len(known)] == known
    assert second.prompt_token_ids == engine.prompts[1]


async def test_our_own_client_gets_exact_tokens_over_http(chat):
    """Sampled ids survive an API of text: what the model wrote is not what its message renders to."""
    said = f"I add.\n{CALL}<|im_end|>"
    add = ToolDefinition("add", "Add.", {"type": "object"})
    async with serving(chat, said, "2<|im_end|>") as (client, engine), HttpModel("tiny", str(client.base_url)) as http:
        conversation = http.converse(tools=[add], sampling=Sampling(logprobs=True))
        first = await conversation.reply(ASK)
        call_id = first.message["tool_calls"][0]["id"]
        second = await conversation.reply([{"role": "tool", "content": "2", "tool_call_id": call_id}])
    segments = [*first.segments, *second.segments]
    assert [segment.sampled for segment in segments] == [False, True, False, True]
    assert segments[1].ids == chat.encode(said)
    assert [token for segment in segments[:3] for token in segment.ids] == engine.prompts[1]
    assert segments[3].logprobs == [-0.5] * 2


@pytest.mark.parametrize("said", [f"\n \tI add.\n{CALL}", "\n\nI cannot. ", f" \n{CALL}", " \n"])
async def test_a_stream_with_tools_shows_what_the_whole_answer_has(chat, said):
    """And sent back, it is the conversation the server knows."""
    async with serving(chat, *[f"{said}<|im_end|>"] * 2, "2<|im_end|>") as (client, engine):
        create = client.chat.completions.create
        whole = (await create(model="tiny", messages=ASK, tools=TOOLS)).choices[0].message
        chunks = [
            chunk.choices[0] async for chunk in await create(model="tiny", messages=ASK, tools=TOOLS, stream=True)
        ]
        content = "".join(chunk.delta.content or "" for chunk in chunks)
        calls = [call.to_dict() for chunk in chunks for call in chunk.delta.tool_calls or ()]
        reply = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
        await create(model="tiny", messages=[*ASK, reply, {"role": "user", "content": "and?"}], tools=TOOLS)
    assert content == (whole.content or "")
    known = [*engine.prompts[0], *chat.encode(f"{said}<|im_end|>")]
    assert engine.prompts[2][: len(known)] == known


async def test_an_edited_history_is_rendered_anew(chat):
    async with serving(chat, "first<|im_end|>") as (client, engine):
        await client.chat.completions.create(model="tiny", messages=ASK)
        edited = [*ASK, {"role": "assistant", "content": "other"}, {"role": "user", "content": "and?"}]
        await client.chat.completions.create(model="tiny", messages=edited)
    assert engine.prompts[1] == chat.prompt(edited)


async def test_tools_in_a_stream(chat):
    async with serving(chat, f"I add.\n{CALL}<|im_end|>") as (client, _):
        stream = await client.chat.completions.create(model="tiny", messages=ASK, tools=TOOLS, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "I add."
    (call,) = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert (call.index, call.function.name, json.loads(call.function.arguments)) == (0, "add", {"a": 1})
    assert chunks[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_strings(chat, stream):
    async with serving(chat, "one two STOP three<|im_end|>") as (client, _):
        reply = await client.chat.completions.create(model="tiny", messages=ASK, stop=["STOP"], stream=stream)
        if stream:
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in reply])
        else:
            text = reply.choices[0].message.content
    assert text == "one two "


async def test_completions(chat):
    async with serving(chat, "ab<|im_end|>", "cd<|im_end|>") as (client, engine):
        reply = await client.completions.create(
            model="tiny", prompt=["x", "yz"], max_tokens=2, logprobs=1, extra_body={"return_token_ids": True}
        )
        by_ids = await client.completions.create(model="other-name", prompt=[10, 11, 12])
    assert [(c.index, c.text, c.finish_reason) for c in reply.choices] == [(0, "ab", "length"), (1, "cd", "length")]
    assert reply.choices[0].logprobs.tokens == ["a", "b"]
    assert reply.choices[0].logprobs.text_offset == [0, 1]
    assert reply.choices[1].token_ids == chat.encode("cd")
    assert reply.choices[1].prompt_token_ids == chat.encode("yz")
    assert reply.usage.prompt_tokens == 3
    assert engine.prompts[2] == [10, 11, 12]
    assert by_ids.object == "text_completion"


@pytest.mark.parametrize("stream", [False, True])
async def test_one_request_asks_for_a_bounded_number_of_answers(chat, stream):
    assert CompletionRequest(model="tiny", prompt=["x"] * 16, n=128).n * 16 == limits.SERVE_ANSWERS
    async with serving(chat, "x") as (client, engine):
        with pytest.raises(openai.BadRequestError, match=r"2,176 answers; the limit is 2,048\. Send several requests"):
            await client.completions.create(model="tiny", prompt=["x"] * 17, n=128, stream=stream)
    assert engine.prompts == []


async def test_completions_as_a_stream(chat):
    async with serving(chat, "abc<|im_end|>") as (client, _):
        stream = await client.completions.create(model="tiny", prompt="x", stream=True, logprobs=0)
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "abc"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert sum(len(chunk.choices[0].logprobs.tokens) for chunk in chunks) == 4


async def test_offsets_in_a_stream_are_those_of_the_whole(chat):
    """Text that is held back, here for a stop string that never comes, moves no token."""
    asked = {"model": "tiny", "prompt": "x", "logprobs": 0, "stop": ["hell oZ", "日本"]}
    async with serving(chat, "hell o日 12<|im_end|>") as (client, _):
        whole = (await client.completions.create(**asked)).choices[0]
        chunks = [chunk.choices[0] async for chunk in await client.completions.create(**asked, stream=True)]
    offsets = [offset for chunk in chunks for offset in chunk.logprobs.text_offset]
    assert offsets == whole.logprobs.text_offset
    assert offsets[:4] == [0, 4, 5, 6]
    assert "".join(chunk.text for chunk in chunks) == whole.text


async def test_models(chat):
    async with serving(chat, "x") as (client, _):
        assert [model.id async for model in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("other-name")).id == "tiny"
        with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
            await client.models.retrieve("gpt-9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role 'wizard'"),
        ({"messages": [{"role": "user", "content": 5}]}, "content must be"),
        ({"messages": [{"role": "user", "content": [5]}]}, "content must be"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "needs a function"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "reads text only"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n:"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"presence_penalty": 1}, "presence_penalty: not supported"),
        ({"min_p": 0.1}, "min_p: not supported"),
        ({"repetition_penalty": 1.2}, "repetition_penalty: not supported"),
        ({"guided_json": {"type": "object"}}, "guided_json: not supported"),
        ({"max_token": 5}, "max_token: not supported by this server; did you mean max_tokens?"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "continuous_usage_stats: not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logprobs": True, "top_logprobs": 5}, "top_logprobs"),
        ({"seed": "x"}, "seed"),
        ({"stop": ["a"] * 17}, "stop: 17 texts; the limit is 16"),
        ({"stop": "q" * 1001}, "stop: a text of 1,001 characters; the limit is 1,000"),
        *[
            ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"required": wrong}}}]}, named)
            for named in ["tools.0.function.parameters: 'required' must be a list of names"]
            for wrong in (5, "a", True, {"a": 1}, [1])
        ],
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]},
            "tools.0.function.parameters",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "grammar": "a"}}]}, "grammar: not supported"),
        ({"tools": [{"type": "function", "function": {"name": "f"}, "format": "a"}]}, "format: not supported"),
    ],
)
async def test_bad_requests_are_named(chat, change, message):
    async with serving(chat, "x") as (client, engine):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.post("/chat/completions", body={"model": "tiny", "messages": ASK, **change}, cast_to=object)
    assert message in caught.value.body["message"]
    assert caught.value.body["type"] == "invalid_request_error"
    assert engine.prompts == []


FOREIGN = {
    "add_generation_prompt": False,
    "best_of": 3,
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": False},
    "continue_final_message": True,
    "dry_multiplier": 0.8,
    "grammar": 'root ::= "yes"',
    "include_stop_str_in_output": True,
    "logits_processors": ["a"],
    "lora": [{"id": 0, "scale": 1.0}],
    "mirostat": 2,
    "moderation": {"model": "m"},
    "parallel_tool_calls": False,
    "prefill": "Yes",
    "reasoning_effort": "high",
    "regex": "a+",
    "return_tokens_as_token_ids": True,
    "skip_special_tokens": False,
    "stop_regex": "a+",
    "truncate_prompt_tokens": 4,
    "web_search_options": {},
    "never_heard_of": 1,
}


@pytest.mark.parametrize(("name", "value"), FOREIGN.items())
async def test_a_field_this_server_does_not_know_is_refused_by_name(chat, name, value):
    async with serving(chat, "x") as (client, engine):
        for create, asked in (
            (client.chat.completions.create, {"messages": ASK}),
            (client.completions.create, {"prompt": "x"}),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await create(model="tiny", extra_body={name: value}, **asked)
            assert name in caught.value.body["message"]
            assert "not supported by this server" in caught.value.body["message"]
    assert engine.prompts == []


async def test_fields_that_change_nothing_are_taken(chat):
    """All that the official client can send beside what is supported, and the defaults of other servers."""
    told = dict.fromkeys(IGNORED, "x") | {"metadata": {"a": "b"}, "prediction": {"type": "content", "content": "y"}}
    async with serving(chat, "yes<|im_end|>") as (client, engine):
        reply = await client.chat.completions.create(
            model="tiny", messages=ASK, extra_body={**NEUTRAL, **told, "grammar": None}
        )
        stream = await client.chat.completions.create(
            model="tiny",
            messages=ASK,
            stream=True,
            stream_options={"include_usage": True, "include_obfuscation": False},
        )
        chunks = [chunk async for chunk in stream]
    assert reply.choices[0].message.content == "yes"
    assert chunks[-1].usage.completion_tokens == 4
    assert engine.params[0] == engine.params[1]
    assert engine.prompts[0] == engine.prompts[1]


def test_null_is_the_default_of_a_tools_fields_too():
    function = {"name": "f", "description": None, "parameters": None, "strict": None}
    (tool,) = ChatRequest.model_validate(
        {"model": "tiny", "messages": ASK, "tools": [{"type": "function", "function": function}]}
    ).definitions()
    assert tool == ToolDefinition("f", "", None)
    (strict,) = ChatRequest.model_validate(
        {"model": "tiny", "messages": ASK, "tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}
    ).definitions()
    assert strict == tool


def test_every_field_of_the_official_client_is_decided_on():
    """A newer client may send new ones: they are refused until somebody has decided."""
    theirs = get_type_hints(CompletionCreateParamsBase).keys() | {"stream"}
    refused = {"audio", "moderation", "web_search_options"}
    assert theirs - refused <= ChatRequest.model_fields.keys() | IGNORED | NEUTRAL.keys()
    assert not IGNORED & NEUTRAL.keys()


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_have_the_apis_shape(chat, stream):
    async with serving(chat, ModelUnavailable("gone")) as (client, _):
        create = client.chat.completions.create
        with pytest.raises(openai.BadRequestError) as caught:
            await create(model="tiny", messages=[{"role": "user", "content": "x" * 3000}], stream=stream)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.NotFoundError) as unknown:
            await create(model="nope", messages=ASK, stream=stream)
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.InternalServerError):
            await create(model="tiny", messages=ASK, stream=stream)


async def test_a_body_that_is_no_json(chat):
    async with serving(chat, "x") as (client, _), aiohttp.ClientSession() as session:
        url = f"{client.base_url}chat/completions"
        for data, kind in ((b"{", "application/json"), (b"[1]", "application/json"), (b"{}", "text/plain")):
            async with session.post(url, data=data, headers={"Content-Type": kind}) as response:
                assert response.status == 400
                assert (await response.json())["error"]["message"]
        async with session.get(f"{client.base_url}nothing") as response:
            assert response.status == 404
            message = (await response.json())["error"]["message"]
            assert message.startswith("GET /v1/nothing: Not Found. There are POST /v1/chat/completions")


PACKED = gzip.compress(json.dumps({"model": "tiny", "messages": ASK}).encode(), mtime=0)  # collected alike everywhere


@pytest.mark.parametrize("whole", [b"no gzip", PACKED])
async def test_a_packed_body(chat, whole):
    """One that is broken is the client's mistake; one that is not is read."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    async with serving(chat, "x<|im_end|>") as (client, _), aiohttp.ClientSession() as session:
        url = f"{client.base_url}chat/completions"
        async with session.post(url, data=whole, headers=headers) as response:
            body = await response.json()
            if whole == b"no gzip":
                assert (response.status, body["error"]["type"]) == (400, "invalid_request_error")
                assert "Content-Encoding" in body["error"]["message"]
            else:
                assert body["choices"][0]["message"]["content"] == "x"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_fit_is_refused_uncounted(chat, stream):
    text = "x" * 100_000
    async with serving(chat, "x") as (client, engine):
        for create, asked in (
            (client.chat.completions.create, {"messages": [{"role": "user", "content": text}]}),
            (client.completions.create, {"prompt": ["short", text]}),
        ):
            with pytest.raises(
                openai.BadRequestError, match="has 100,000 characters; tiny takes 2048 tokens"
            ) as caught:
                await create(model="tiny", stream=stream, **asked)
            assert caught.value.code == "context_length_exceeded"
    assert engine.prompts == []


def test_no_token_stands_for_more_characters_than_the_longest(chat):
    assert chat.longest_token == len("<|endoftext|>")
    assert all(len(chat.spell([token])) <= chat.longest_token for token in range(chat.vocabulary))


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_a_long_prompt_is_tokenised_beside_the_others(chat, monkeypatch, kind):
    begun, answered, waited = threading.Event(), threading.Event(), []
    encode = chat.encode

    def watched(text, **options):
        if len(text) > 20_000:
            begun.set()
            waited.append(answered.wait(60))
        return encode(text, **options)

    monkeypatch.setattr(chat, "encode", watched)
    text = "x" * 21_000
    async with serving(chat, "ok<|im_end|>") as (client, _):
        asked = {"messages": [{"role": "user", "content": text}]} if kind == "chat" else {"prompt": text}
        create = client.chat.completions.create if kind == "chat" else client.completions.create
        long = asyncio.create_task(create(model="tiny", **asked))
        assert await asyncio.to_thread(begun.wait, 60)
        reply = await client.chat.completions.create(model="tiny", messages=ASK)
        answered.set()
        with pytest.raises(openai.BadRequestError) as caught:
            await long
    assert waited == [True], "the server stood still while it tokenised"
    assert reply.choices[0].message.content == "ok"
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("end", ["dies", "is closed"])
async def test_a_server_without_its_engine_says_so(chat, monkeypatch, end):
    def lost(*given, **options):
        raise RuntimeError("device lost")

    engine = LocalModel.load(chat.directory, device="cpu").engine
    async with serving(chat, engine=engine) as (client, _), aiohttp.ClientSession() as session:
        health = str(client.base_url).replace("/v1/", "/health")
        async with session.get(health) as response:
            assert (response.status, (await response.json())["status"]) == (200, "ok")
        if end == "dies":
            monkeypatch.setattr(engine._runner, "prefill", lost)
        else:
            engine.close()
        reason = "RuntimeError: device lost" if end == "dies" else "The engine is closed"
        for _ in range(2):  # one that was under way, and one that comes later
            with pytest.raises(openai.InternalServerError, match=reason) as caught:
                await client.chat.completions.create(model="tiny", messages=ASK)
            assert (caught.value.status_code, caught.value.code) == (503, "model_unavailable")
        async with session.get(health) as response:
            body = await response.json()
    engine.close()
    assert (response.status, body["status"]) == (503, "unavailable")
    assert reason in body["reason"]


async def test_a_key_is_asked_for(chat):
    async with serving(chat, "x<|im_end|>", api_key="secret") as (client, _), aiohttp.ClientSession() as session:
        assert (await client.chat.completions.create(model="tiny", messages=ASK)).choices
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
        async with session.get(str(client.base_url).replace("/v1/", "/health")) as response:
            assert response.status == 200
            assert await response.json() == {"status": "ok", "running": 0, "waiting": 0}


@pytest.mark.parametrize(("header", "value"), [("Host", "evil.example"), ("Origin", "http://evil.example")])
async def test_other_hosts_are_refused(chat, header, value):
    async with serving(chat, "x<|im_end|>") as (client, engine):
        with pytest.raises(openai.PermissionDeniedError):
            await client.chat.completions.create(model="tiny", messages=ASK, extra_headers={header: value})
        assert engine.prompts == []
        port = client.base_url.port
        local = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
        assert await client.chat.completions.create(model="tiny", messages=ASK, extra_headers=local)


def test_an_open_interface_needs_a_key():
    with pytest.raises(UsageError, match="--api-key"):
        Listener("0.0.0.0")
    assert Listener("0.0.0.0", "key")
    assert Listener("127.0.0.1")
    assert "key" not in repr(Listener("0.0.0.0", "key"))


def test_a_taken_port_is_told_before_the_model_is_loaded(monkeypatch):
    monkeypatch.setattr("benchmax.inference.weights.store.resolve", lambda *given, **options: pytest.fail("loaded"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UsageError, match="is taken"):
            serve("no-such-model", port=other.getsockname()[1], host="127.0.0.1", api_key=None)
    with pytest.raises(UsageError, match="cannot be bound"):
        check_port("192.0.2.1", 8000)
    with pytest.raises(UsageError, match="is no address of this machine"):
        check_port("x" * 70, 8000)


async def test_a_taken_port_is_one_line(chat):
    async with serving(chat, "x") as (client, engine):
        with pytest.raises(UsageError, match="is taken"):
            await start(LocalModel(engine, chat), port=client.base_url.port)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_generation(chat, stream):
    engine = FakeEngine(chat.encode("abcdef"), gate=asyncio.Event())
    async with serving(chat, engine=engine) as (client, _):
        async with aiohttp.ClientSession() as session:
            body = {"model": "tiny", "messages": ASK, "stream": stream}
            request = session.post(f"{client.base_url}chat/completions", json=body)
            if stream:
                response = await request
                await response.content.readline()
                response.close()
            else:
                task = asyncio.ensure_future(request)
                await engine.started.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(engine.cancelled.wait(), 60)


def test_a_stream_of_text_is_never_taken_back(chat):
    text = "ein STOrm, <tool_ca und 日本 " * 20
    stream = TextStream(chat, ["STOP"], tools=True)
    shown = ""
    for token in chat.encode(text):
        shown += stream.push([token])
        assert text.startswith(shown)
    assert len(shown) > len(text) - 40
    assert shown + stream.finish(text) == text


def test_broken_bytes_do_not_hold_a_stream_forever(chat):
    stream = TextStream(chat)
    broken = chat.encode("é")[:1] * 40
    shown = "".join(stream.push([token]) for token in broken)
    assert shown
    assert shown + stream.finish(chat.decode(broken)) == chat.decode(broken)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*range(3, 265), *(3 + byte for byte in "日".encode() * 30)]), max_size=120))
def test_a_stream_of_any_bytes_is_the_whole_text(chat, tokens):
    """Broken ones too, many in a row, and characters that are completed after them."""
    stream = TextStream(chat)
    shown = ""
    for token in tokens:
        shown += stream.push([token])
        assert chat.decode(tokens).startswith(shown)
    assert shown + stream.finish(chat.decode(tokens)) == chat.decode(tokens)


def test_a_character_completed_after_broken_bytes_is_shown(chat):
    broken = [*chat.encode("é")[:1] * 100, *chat.encode("é!")]
    stream = TextStream(chat)
    assert "".join(stream.push([token]) for token in broken) == "\ufffd" * 100 + "é!"


def test_bytes_spelled_as_tokens_are_shown_when_their_row_ends(chat, tmp_path):
    """Such a decoder reads a row of bytes whole: a wrong one spoils the characters before it."""
    folder = shutil.copytree(chat.directory, tmp_path / "bytes")
    state = json.loads((folder / "tokenizer.json").read_text())
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *"abc"]
    state["model"] |= {"vocab": {name: index for index, name in enumerate(names)}, "merges": [], "byte_fallback": True}
    state["pre_tokenizer"], state["decoder"] = None, {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, FUSE]}
    (folder / "tokenizer.json").write_text(json.dumps(state))
    spelled = ChatTokens(folder)
    assert spelled.decode(spelled.encode("a日本c")) == "a日本c"
    for tokens, row in (
        (spelled.encode("a日本日本日c"), "日本日本日"),
        ([*spelled.encode("aé"), 3 + 0xFF, *spelled.encode("c")], "\ufffd" * 3),
    ):
        stream = TextStream(spelled)
        pieces = [stream.push([token]) for token in tokens]
        assert [piece for piece in pieces if piece] == ["a", f"{row}c"]
    stream = TextStream(spelled)
    assert stream.push(spelled.encode("a日")) + stream.finish("a日") == "a日"


@settings(max_examples=300, deadline=None)
@given(st.text("ab ", max_size=60), st.lists(st.text("ab ", min_size=1, max_size=12), max_size=3))
def test_a_stream_holds_back_the_beginning_of_a_stop_and_no_more(chat, text, stops):
    text = text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]
    stream = TextStream(chat, stops)
    for end, token in enumerate(chat.encode(text), 1):
        stream.push([token])
        begun = max((n for stop in stops for n in range(len(stop)) if text[:end].endswith(stop[:n])), default=0)
        assert stream.shown == text[: end - begun]


def test_a_long_stop_takes_no_time(chat):
    stream = TextStream(chat, ["q" * 100_000])
    began = time.thread_time()
    for token in chat.encode("q" * 200):
        assert stream.push([token]) == ""
    assert time.thread_time() - began < 2


def test_model_and_checkpoint_are_told_apart(tmp_path):
    assert split_checkpoint("smollm2-135m") == ("smollm2-135m", None)
    assert split_checkpoint("smollm2-135m:runs/a/step-3") == ("smollm2-135m", "runs/a/step-3")
    (tmp_path / "a:b").mkdir()
    assert split_checkpoint(str(tmp_path / "a:b")) == (str(tmp_path / "a:b"), None)


async def test_a_key_that_is_no_text_is_refused_like_any_other(chat):
    async with serving(chat, "x<|im_end|>", api_key="secret") as (client, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        writer.close()
        await writer.wait_closed()
