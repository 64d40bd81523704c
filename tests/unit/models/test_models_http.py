"""The HTTP model against a real server on the loopback."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.errors import ConfigError, ModelProtocolError, ModelRejected, ModelUnavailable
from benchmax.models import HttpModel, Sampling, TokenSegment, chat_api
from benchmax.testing import FakeModelServer, Fault

ADD = ToolDefinition("add", "Add", {"type": "object", "properties": {"a": {"type": "integer"}}})


def ask(text):
    return [{"role": "user", "content": text}]


def completion(message, finish="stop", **fields):
    choice = {"index": 0, "message": message, "finish_reason": finish, **fields.pop("choice", {})}
    return {"choices": [choice], **fields}


async def test_a_turn_sends_the_sampling_the_tools_and_the_key():
    async with FakeModelServer("hello") as server, HttpModel("m", server.base_url + "/", "sk-12345") as model:
        sampling = Sampling(0.5, 0.9, top_k=20, max_tokens=64, stop=("END",), seed=7, extra={"min_p": 0.1})
        reply = await model.converse(tools=[ADD], sampling=sampling).reply(ask("hi"), max_tokens=32)
    assert reply.message == {"role": "assistant", "content": "hello"}
    assert (reply.finish, reply.segments) == ("stop", [])
    body = server.bodies[0]
    assert body.pop("tools")[0]["function"]["name"] == "add"
    assert body == {
        "model": "m",
        "messages": ask("hi"),
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 32,
        "stop": ["END"],
        "seed": 7,
        "min_p": 0.1,
    }
    assert server.headers[0]["Authorization"] == "Bearer sk-12345"


async def test_optional_fields_are_left_out():
    async with FakeModelServer() as server, HttpModel("m", server.base_url) as model:
        await model.converse(sampling=Sampling(max_tokens=None)).reply(ask("hi"))
    assert server.bodies[0].keys() == {"model", "messages", "temperature", "top_p"}
    assert "Authorization" not in server.headers[0]


async def test_the_history_grows_and_each_message_is_encoded_once(monkeypatch):
    encoded = []
    plain = chat_api.encode_message
    monkeypatch.setattr(chat_api, "encode_message", lambda message: encoded.append(message) or plain(message))
    async with (
        FakeModelServer(lambda body: f"turn {len(body['messages'])}") as server,
        HttpModel("m", server.base_url) as model,
    ):
        talk = model.converse()
        for turn in range(5):
            await talk.reply(ask(f"q{turn} “ü”"))
    assert len(encoded) == 10
    assert [m["content"] for m in server.bodies[-1]["messages"]] == [
        text for turn in range(5) for text in (f"q{turn} “ü”", f"turn {2 * turn + 1}")
    ][:-1]


async def test_an_answer_of_many_reads_arrives_whole():
    text = "".join(f"{number} “ü” " for number in range(100_000))
    async with FakeModelServer(text) as server, HttpModel("m", server.base_url) as model:
        reply = await model.converse().reply(ask("hi"))
    assert reply.message["content"] == text


async def test_tool_calls_come_in_every_spelling():
    calls = [
        {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"function": {"name": "add", "arguments": {"a": 2}}},
        {"id": "x", "name": "add", "arguments": ""},
        {"function": {"name": None, "arguments": "{bad"}},
        "add(3)",
    ]
    async with (
        FakeModelServer(lambda _: completion({"tool_calls": calls})) as server,
        HttpModel("m", server.base_url) as model,
    ):
        talk = model.converse(tools=[ADD])
        reply = await talk.reply(ask("?"))
        again = await talk.reply([{"role": "tool", "tool_call_id": "x", "content": "1"}])
    read = [ToolCall.from_dict(call) for call in reply.message["tool_calls"]]
    assert (reply.finish, reply.message["content"]) == ("tool_calls", "")
    assert [call.arguments for call in read] == ['{"a": 1}', '{"a": 2}', "{}", "{bad", '"add(3)"']
    ids = [call.id for call in read] + [call["id"] for call in again.message["tool_calls"]]
    assert ids[:2] == ["x", "call_2"]
    assert len(set(ids)) == 10
    # Servers parse the arguments of a history: what is sent back is always a JSON object.
    sent = server.bodies[1]["messages"][1]["tool_calls"]
    assert json.loads(sent[3]["function"]["arguments"]) == {"invalid_json": "{bad"}
    assert sent[3]["function"]["name"] == "invalid"


@pytest.mark.parametrize(
    ("message", "finish", "expected"),
    [
        ({"content": None}, "stop", ("", "stop")),
        ({}, "length", ("", "length")),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]}, "eos_token", ("ab", "stop")),
        ({"content": "a", "tool_calls": None}, None, ("a", "stop")),
        ({"content": None, "refusal": "no"}, "content_filter", ("no", "content_filter")),
        ({"content": " <|im_start|>\ud800\x00 "}, ["odd"], (" <|im_start|>\ud800\x00 ", "stop")),
    ],
)
def test_replies_are_read_with_suspicion(message, finish, expected):
    reply = chat_api.decode_reply(json.dumps(completion(message, finish)).encode())
    assert (reply.text, reply.finish) == expected


def test_bytes_that_are_no_utf8_do_not_lose_the_reply():
    body = json.dumps(completion({"content": "caf@"})).encode().replace(b"@", b"\xc3")
    assert chat_api.decode_reply(body).text == "caf\ufffd"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'data: {"choices": [{"delta": {"content": "a"',
        b"[" * 100_000,
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": 1}]}',
        b'{"choices": [{"message": {"content": {"a": 1}}}]}',
        b'{"choices": [{"message": {}}], "usage": {"prompt_tokens": "x"}}',
    ],
)
def test_what_is_no_reply_is_a_protocol_error(body):
    with pytest.raises(ModelProtocolError, match="not a chat completion"):
        chat_api.decode_reply(body)


async def test_usage_and_price():
    answer = completion({"content": "x"}, usage={"prompt_tokens": 2000, "completion_tokens": 100, "cost": 0.25})
    async with FakeModelServer(lambda _: answer) as server, HttpModel("m", server.base_url, price=(1.0, 10.0)) as model:
        priced = await model.converse().reply(ask("?"))
        async with HttpModel("m", server.base_url) as model:
            told = await model.converse().reply(ask("?"))
    assert (priced.usage.prompt_tokens, priced.usage.completion_tokens) == (2000, 100)
    assert priced.usage.cost_usd == pytest.approx(0.003)
    assert told.usage.cost_usd == 0.25


def token_server(prompts):
    """Answers turn by turn with the prompt ids of `prompts` and two sampled tokens, 90 and 91."""
    turns = iter(prompts)

    def script(body):
        assert body["return_token_ids"] is True
        assert body["logprobs"] is True
        logprobs = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]}
        choice = {"token_ids": [90, 91], "logprobs": logprobs}
        return completion({"content": "ab"}, prompt_token_ids=next(turns), choice=choice)

    return FakeModelServer(script)


async def test_token_ids_become_segments_of_what_is_new():
    async with token_server([[1, 2, 3], [1, 2, 3, 90, 91, 4]]) as server, HttpModel("m", server.base_url) as model:
        talk = model.converse(sampling=Sampling(logprobs=True))
        first, second = await talk.reply(ask("a")), await talk.reply(ask("b"))
    sampled = TokenSegment([90, 91], True, [-0.5, -1.5])
    assert first.segments == [TokenSegment([1, 2, 3], False), sampled]
    assert second.segments == [TokenSegment([4], False), sampled]
    assert talk.trail.ids == [1, 2, 3, 90, 91, 4, 90, 91]


async def test_tokens_that_contradict_the_known_ones_give_no_segments_from_then_on():
    prompts = [[1, 2], [1, 2, 90, 7, 4], [1, 2, 90, 7, 4, 90, 91, 5]]
    async with token_server(prompts) as server, HttpModel("m", server.base_url) as model:
        talk = model.converse(sampling=Sampling(logprobs=True))
        replies = [await talk.reply(ask("a")) for _ in prompts]
    assert [len(reply.segments) for reply in replies] == [2, 0, 0]
    assert talk.trail.exact is False


async def test_token_ids_can_be_turned_off():
    async with FakeModelServer() as server, HttpModel("m", server.base_url, token_ids=False) as model:
        await model.converse(sampling=Sampling(logprobs=True)).reply(ask("?"))
    assert server.bodies[0]["logprobs"] is True
    assert "return_token_ids" not in server.bodies[0]


async def test_hermes_round_trip():
    first = 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    first += '<tool_call>{"name": "add", oops</tool_call>'
    texts = iter([first, "It is 2."])
    async with (
        FakeModelServer(lambda _: next(texts)) as server,
        HttpModel("m", server.base_url, tool_format="hermes") as model,
    ):
        talk = model.converse(tools=[ADD])
        reply = await talk.reply([{"role": "system", "content": "Be brief."}, *ask("1+1?")])
        results = [{"role": "tool", "tool_call_id": c["id"], "content": c["id"]} for c in reply.message["tool_calls"]]
        last = await talk.reply(results)
    good, bad = (ToolCall.from_dict(call) for call in reply.message["tool_calls"])
    assert (reply.message["content"], reply.finish) == ("Let me see.", "tool_calls")
    assert (good.name, good.arguments_dict(), good.id) == ("add", {"a": 1}, "call_1")
    assert (bad.name, bad.arguments) == ("add", '{"name": "add", oops')
    assert (last.message, last.finish) == ({"role": "assistant", "content": "It is 2."}, "stop")
    body = server.bodies[1]
    assert "tools" not in body
    system, user, assistant, tool = body["messages"]
    assert system["content"].startswith("Be brief.\n\n# Tools\n")
    assert user == ask("1+1?")[0]
    assert assistant == {"role": "assistant", "content": first}
    response = "<tool_response>\n{}\n</tool_response>"
    assert tool == {"role": "user", "content": f"{response.format('call_1')}\n{response.format('call_2')}"}


async def test_hermes_writes_given_calls_as_text():
    history = [
        *ask("1+1?"),
        {"role": "assistant", "content": "", "tool_calls": [ToolCall("add", '{"a": 1}', "x").to_dict()]},
        {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "2"}]},
    ]
    async with FakeModelServer() as server, HttpModel("m", server.base_url, tool_format="hermes") as model:
        await model.converse(tools=[ADD]).reply(history)
    assert [(m["role"], m["content"]) for m in server.bodies[0]["messages"][2:]] == [
        ("assistant", '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'),
        ("user", "<tool_response>\n2\n</tool_response>"),
    ]


async def test_hermes_without_tools_leaves_text_alone():
    text = '<tool_call>{"name": "add"}</tool_call>'
    async with FakeModelServer(text) as server, HttpModel("m", server.base_url, tool_format="hermes") as model:
        reply = await model.converse().reply(ask("?"))
    assert reply.message == {"role": "assistant", "content": text}


async def test_a_failed_turn_leaves_the_conversation_as_it_was():
    faults = [Fault("error"), Fault("error")]
    async with FakeModelServer(faults=faults) as server, HttpModel("m", server.base_url, tries=1) as model:
        talk = model.converse()
        for _ in range(2):
            with pytest.raises(Exception, match="500"):
                await talk.reply(ask("one"))
        await talk.reply(ask("two"))
    assert server.bodies[-1]["messages"] == ask("two")


async def test_bodies_over_a_megabyte_are_sent_without_a_warning():
    async with (
        FakeModelServer(lambda body: str(len(body["messages"][0]["content"]))) as server,
        HttpModel("m", server.base_url) as model,
    ):
        reply = await model.converse().reply(ask("x" * 3_000_000))
    assert reply.message["content"] == "3000000"


async def test_messages_that_are_no_json_are_refused_before_sending():
    async with FakeModelServer() as server, HttpModel("m", server.base_url) as model:
        with pytest.raises(ModelRejected, match="cannot be written as JSON"):
            await model.converse().reply([{"role": "user", "content": float("nan")}])
    assert server.requests == 0


def test_one_model_serves_one_loop_after_another_and_closes_by_itself():
    model = None

    async def use():
        nonlocal model
        async with FakeModelServer("hi") as server:
            if model is None:
                model = HttpModel("m", server.base_url)
            else:
                model._url = HttpModel("m", server.base_url)._url
            await model.converse().reply(ask("?"))
            return next(iter(model._sessions.values()))[0]

    first, second = asyncio.run(use()), asyncio.run(use())
    assert first is not second
    assert first.closed
    assert second.closed


async def test_closing_reaches_the_sessions_of_other_running_loops():
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    async with FakeModelServer("hi") as server:
        model = HttpModel("m", server.base_url)
        there = asyncio.run_coroutine_threadsafe(model.converse().reply(ask("?")), other)
        await asyncio.wrap_future(there)
        await model.converse().reply(ask("?"))
        sessions = [session for session, _ in model._sessions.values()]
        await model.aclose()
        assert [session.closed for session in sessions] == [True, True]
        assert (await model.converse().reply(ask("?"))).message["content"] == "hi"
        await model.aclose()
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("localhost:8000", {}, "not an http"),
        ("", {}, "not an http"),
        ("http://[::1", {}, "not an http"),
        ("http://u:secret@h:99999/v1", {}, "not an http"),
        ("http://u:secret@h:abc/v1", {}, "not an http"),
        ("http://h/v1", {"tool_format": "xml"}, "tool_format"),
        ("http://h/v1", {"tries": 0}, "at least 1"),
        ("http://h/v1", {"api_key": "sk-secret\nX: y"}, "Copy it again"),
    ],
)
def test_bad_settings_are_refused(url, options, says):
    with pytest.raises(ConfigError, match=says) as caught:
        HttpModel("m", url, **options)
    assert "secret" not in str(caught.value)


def test_extra_fields_may_not_replace_ours():
    with pytest.raises(ConfigError, match="stream"):
        HttpModel("m", "http://h/v1").converse(sampling=Sampling(extra={"stream": True}))


def test_keys_come_from_the_environment_for_their_own_host_only(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    assert HttpModel("m", "https://api.openai.com/v1")._headers["Authorization"] == "Bearer sk-env"
    assert "Authorization" not in HttpModel("m", "https://elsewhere.test/v1")._headers
    mine = HttpModel("m", "https://elsewhere.test/v1", key_variable="OPENAI_API_KEY")
    assert mine._headers["Authorization"] == "Bearer sk-env"
    assert "sk-env" not in repr(mine)


# What is refused at once


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "name is ''"),
        ({"name": None}, "name is None"),
        ({"base_url": None}, "base_url is not"),
        ({"price": 3.0}, "price is 3.0; give a pair"),
        ({"price": (1.0,)}, "give a pair"),
        ({"price": (1.0, "2")}, r"price\[1\] is '2'"),
        ({"price": (-1.0, 2.0)}, r"price\[0\] is -1.0"),
        ({"timeout": "5"}, "timeout is '5'"),
        ({"tries": 0}, "tries is 0"),
        ({"connections": 1.5}, "connections is 1.5"),
    ],
    ids=str,
)
def test_wrong_settings_of_a_model_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        HttpModel(**{"name": "m", "base_url": "http://localhost/v1", **wrong})


async def test_a_url_that_already_names_the_endpoint_is_taken():
    async with FakeModelServer("hello") as server:
        for end in ("/chat/completions", "/chat/completions/"):
            async with HttpModel("m", server.base_url + end) as model:
                assert (await model.converse().reply(ask("hi"))).message["content"] == "hello"


# The fake server


@pytest.mark.parametrize("fault", ["eror", None, 500])
def test_an_unknown_fault_is_refused(fault):
    with pytest.raises(ConfigError, match="stall, reset, rate_limit"):
        Fault(fault)
    with pytest.raises(ConfigError, match="no fault"):
        FakeModelServer(faults=[fault])


async def test_the_error_of_a_script_is_raised_at_the_end(caplog):
    async def script(body):
        raise KeyError("wrong in the script")

    server = FakeModelServer(script)
    await server.__aenter__()
    async with HttpModel("m", server.base_url, tries=1) as model:
        with pytest.raises(ModelUnavailable, match="500"):
            await model.converse().reply(ask("hi"))
    with pytest.raises(KeyError, match="wrong in the script"):
        await server.__aexit__(None, None, None)
    assert caplog.records == []


def test_numbers_that_are_no_numbers_do_not_reach_the_record():
    message = {"role": "assistant", "content": "4"}
    logprobs = {"content": [{"logprob": -0.5}, {"logprob": float("-inf")}]}
    choice = {"token_ids": [1, 2], "logprobs": logprobs}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "cost": float("nan")}
    body = completion(message, choice=choice, prompt_token_ids=[7, 8, 9], usage=usage)
    reply = chat_api.decode_reply(json.dumps(body).encode())
    assert (reply.text, reply.cost, reply.logprobs) == ("4", None, None)
    assert (reply.sampled_ids, reply.prompt_ids) == ([1, 2], [7, 8, 9])
    endless = completion(message, usage={"prompt_tokens": float("inf")})
    with pytest.raises(ModelProtocolError):
        chat_api.decode_reply(json.dumps(endless).encode())


async def test_an_error_does_not_show_the_password_of_a_proxy(monkeypatch):
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    monkeypatch.setenv("https_proxy", f"http://someone:hunt%21er22@127.0.0.1:{port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with proxy, HttpModel("m", "https://model.invalid/v1", tries=1) as model:
        with pytest.raises(ModelUnavailable, match="407") as caught:
            await model.converse().reply(ask("hi"))
    assert "er22" not in str(caught.value)
