"""Model sessions: a model at an address and with a key of its own, and the record of what it was asked there."""

import asyncio
import itertools
import json
import time

import openai
import pytest
from aiohttp import web

from benchmax import limits
from benchmax.platform.server.services.streamed_reply import StreamedReply
from benchmax.platform.store.accounts import api_keys
from benchmax.platform.wire.models import ModelSessionRecord, RecordedCall
from session_world import fake_model, platform_with_a_model

pytestmark = pytest.mark.timeout(300)

SAY = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with platform_with_a_model(tmp_path_factory) as server:
        yield server


@pytest.fixture
def key(live, request):
    return live.key_for(request)


def opened(live, key, name="s", **asked):
    with live.client(key) as client:
        answer = client.put(f"/v1/sessions/{name}", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def talking_to(session):
    return openai.OpenAI(base_url=session["base_url"], api_key=session["session_key"], max_retries=0, timeout=150)


def collected(live, session, key=None, **more):
    with live.client(key or session["session_key"]) as client:
        answer = client.post(f"{session['base_url']}/collect", **more)
    assert answer.status_code == 200, answer.text
    record = answer.json()
    ModelSessionRecord.model_validate({**record, "created_at": 0, "expires_at": 0, "calls": []})
    assert all(set(call) == set(RecordedCall.model_fields) for call in record["calls"])
    return record


def endpoint(live, key, url, name="e", model="upstream"):
    with live.client(key) as client:
        made = client.post("/v1/endpoints", json={"name": name, "baseUrl": url, "model": model, "apiKey": "sk-up"})
    assert made.status_code == 201, made.text


def status_of(live, key, method, path, **more):
    with live.client(key) as client:
        return client.request(method, path, **more).status_code


def test_the_whole_life_of_a_session(live, key):
    session = opened(live, key, "try-1", model="gpt-5.4-nano", max_context_tokens=64, ttl_seconds=600)
    assert session["base_url"] == f"{live.url}/v1/sessions/try-1"
    assert (session["id"], session["model"], session["max_context_tokens"]) == ("try-1", "toy", 64)
    assert session["note"].endswith("toy answers in its place.")
    client = talking_to(session)
    assert [model.id for model in client.models.list()] == ["toy"]
    assert collected(live, session)["calls"] == []
    whole = client.chat.completions.create(model="gpt-5.4-nano", messages=SAY, max_tokens=4, temperature=0.5)
    assert (whole.model, whole.note) == ("toy", session["note"])
    assert "token_ids" not in whole.choices[0].model_extra
    assert "prompt_token_ids" not in whole.model_extra
    record = collected(live, session)
    (call,) = record["calls"]
    assert (record["call_count"], record["truncated"], record["model"]) == (1, False, "toy")
    assert record["created_at"] < call["created_at"] < record["expires_at"]
    assert (call["index"], call["stream"], call["asked_model"], call["model"]) == (0, False, "gpt-5.4-nano", "toy")
    assert (call["messages"], call["tools"]) == (SAY, [])
    assert call["sampling"] == {"max_tokens": 4, "temperature": 0.5}
    assert call["message"]["content"] == whole.choices[0].message.content
    assert call["finish_reason"] == whole.choices[0].finish_reason
    assert call["usage"] == whole.usage.model_dump(exclude_none=True)
    assert len(call["prompt_token_ids"]) == whole.usage.prompt_tokens
    assert len(call["token_ids"]) == whole.usage.completion_tokens
    assert call["error"] is None

    assert collected(live, session, key, json=["anything"])["calls"] == record["calls"], "the owner's key does, too"
    renewed = opened(live, key, "try-1")
    assert collected(live, renewed)["call_count"] == 0
    assert status_of(live, session["session_key"], "POST", "/v1/sessions/try-1/collect") == 401
    assert status_of(live, renewed["session_key"], "DELETE", "/v1/sessions/try-1") == 200
    assert status_of(live, renewed["session_key"], "DELETE", "/v1/sessions/try-1") == 401
    assert status_of(live, key, "DELETE", "/v1/sessions/try-1") == 404


def test_streams_are_as_they_are_elsewhere_and_recorded_whole(live, key):
    session = opened(live, key, model="toy")
    asked = {"model": "toy", "messages": SAY, "max_tokens": 6, "temperature": 0, "stream": True}
    plain = openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0, timeout=150)
    expected = [chunk.choices[0].to_dict() for chunk in plain.chat.completions.create(**asked)]
    heard = [chunk.choices[0].to_dict() for chunk in talking_to(session).chat.completions.create(**asked)]
    assert heard == expected
    list(talking_to(session).chat.completions.create(**asked, extra_body={"return_token_ids": True}, n=2))
    first, second = collected(live, session)["calls"]
    assert first["stream"]
    assert first["message"]["content"] == "".join(each["delta"].get("content", "") for each in expected)
    assert first["message"]["role"] == "assistant"
    assert first["finish_reason"] == expected[-1]["finish_reason"]
    drawn = len(first["token_ids"])
    total = len(first["prompt_token_ids"]) + drawn
    assert first["usage"] == {"prompt_tokens": total - drawn, "completion_tokens": drawn, "total_tokens": total}
    assert first["choices"] == []
    assert [choice["index"] for choice in second["choices"]] == [0, 1]
    assert second["sampling"]["return_token_ids"] is True


def test_a_reply_keeps_within_the_context_and_a_prompt_beyond_it_is_refused(live, key):
    first = talking_to(opened(live, key, model="toy")).chat.completions.create(model="toy", messages=SAY, max_tokens=1)
    room = first.usage.prompt_tokens + 2
    session = opened(live, key, model="toy", max_context_tokens=room)
    client = talking_to(session)
    assert client.chat.completions.create(model="toy", messages=SAY).usage.total_tokens <= room
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="Shorten the prompt") as caught:
            client.chat.completions.create(model="toy", messages=SAY * 3, stream=stream)
        assert caught.value.code == "context_length_exceeded"
    record = collected(live, session)
    assert [call["error"] and call["error"]["code"] for call in record["calls"]] == [
        None, "context_length_exceeded", "context_length_exceeded",
    ]  # fmt: skip
    assert record["calls"][1]["messages"] == SAY * 3
    assert record["calls"][1]["error"]["status"] == 400
    assert record["calls"][1]["message"] is None


def test_the_key_opens_its_session_and_nothing_else(live, key):
    one, two = opened(live, key, "one"), opened(live, key, "two")
    shown = one["session_key"]
    for path in (
        "/v1/whoami",
        "/v1/models",
        "/v1/train/runs",
        "/v1/keys",
        "/openapi.json",
        "/v1/sessions",
        "/v1/sessions/onex",
    ):
        assert status_of(live, shown, "GET", path) == 401, path
    assert status_of(live, shown, "POST", "/v1/chat/completions", json={"messages": SAY}) == 401
    for method, path in [("POST", "/collect"), ("GET", "/models"), ("DELETE", ""), ("POST", "/chat/completions")]:
        assert status_of(live, shown, method, f"/v1/sessions/two{path}", json={"messages": SAY}) == 401, path
    assert status_of(live, shown, "PUT", "/v1/sessions/one", json={}) == 403, "it cannot make itself last"
    assert status_of(live, shown, "GET", "/v1/sessions/one/../../whoami") in (401, 404)
    assert status_of(live, two["session_key"], "GET", "/v1/sessions/two/models") == 200
    with live.client() as nobody:
        assert nobody.post("/v1/sessions/one/collect").status_code == 401


def test_anothers_sessions_are_not_there_and_names_are_ones_own(live, key):
    mine = opened(live, key, "same")
    _, other = live.user("stranger@example.org")
    for method, path in [("POST", "/collect"), ("GET", "/models"), ("DELETE", ""), ("POST", "/chat/completions")]:
        assert status_of(live, other, method, f"/v1/sessions/same{path}", json={"messages": SAY}) == 404, path
    theirs = opened(live, other, "same")
    assert status_of(live, other, "DELETE", "/v1/sessions/same") == 200
    assert status_of(live, theirs["session_key"], "GET", "/v1/sessions/same/models") == 401
    assert status_of(live, mine["session_key"], "GET", "/v1/sessions/same/models") == 200


def test_a_session_ends_with_the_key_that_opened_it(live, key):
    user_id, second = live.user("test_a_session_ends_with_the_key_that_opened_it@example.org")
    session = opened(live, second, "s")
    with live.database.write() as db:
        row, _ = api_keys.find_key(db, second)
        api_keys.revoke_key(db, user_id, row.id)
    assert status_of(live, session["session_key"], "POST", "/v1/sessions/s/collect") == 401
    assert status_of(live, key, "POST", "/v1/sessions/s/collect") == 404
    _, short = live.user("short@example.org", days=0.001)
    expires = opened(live, short, ttl_seconds=1e12)["expires_at"]
    assert expires < opened(live, key, ttl_seconds=1e12)["expires_at"]
    _, reader = live.user("short@example.org", scopes=("read",))
    assert status_of(live, reader, "PUT", "/v1/sessions/s", json={}) == 403


def test_after_its_time_a_session_is_gone(live, key):
    session = opened(live, key, ttl_seconds=0.3)
    deadline = time.monotonic() + 30
    with live.client(session["session_key"]) as client:
        while (answer := client.get("/v1/sessions/s/models")).status_code != 401 and time.monotonic() < deadline:
            assert answer.status_code in (200, 404), "it may end between the look at the key and the answer"
    assert answer.status_code == 401
    assert "the session has ended: open it again" in answer.json()["error"]
    with live.client(key) as client:
        answer = client.post("/v1/sessions/s/collect")
        assert (answer.status_code, "has ended" in answer.json()["error"]) == (404, True)


@pytest.mark.parametrize("name", ["-x", "a%20b", "a%2Fb", "x" * 129, "%2E%2E", "ä"])
def test_names_are_plain(live, key, name):
    assert status_of(live, key, "PUT", f"/v1/sessions/{name}", json={}) in (400, 404)


@pytest.mark.parametrize(
    "asked", [{"max_context_tokens": 0}, {"ttl_seconds": 0}, {"ttl_seconds": "x"}, {"model": "x" * 201}, []]
)
def test_what_a_session_cannot_be_is_refused(live, key, asked):
    assert status_of(live, key, "PUT", "/v1/sessions/s", json=asked) == 400


def test_a_name_that_is_nearly_a_model_is_refused(live, key):
    with live.client(key) as client:
        answer = client.put("/v1/sessions/s", json={"model": "toi"})
    assert (answer.status_code, "Did you mean 'toy'" in answer.json()["error"]) == (404, True)


def test_a_user_has_so_many_sessions_and_no_more(live, key, monkeypatch):
    monkeypatch.setattr(limits, "MODEL_SESSIONS", 2)
    opened(live, key, "a"), opened(live, key, "b")
    with live.client(key) as client:
        refused = client.put("/v1/sessions/c", json={})
    assert (refused.status_code, "End some with DELETE" in refused.json()["error"]) == (429, True)
    opened(live, key, "b")
    opened(live, live.user("another@example.org")[1], "c")
    assert status_of(live, key, "DELETE", "/v1/sessions/a") == 200
    opened(live, key, "c")


# Endpoints


def test_the_newest_calls_are_kept_and_a_very_large_one_without_its_texts(live, key, monkeypatch):
    with fake_model("from elsewhere") as elsewhere:
        endpoint(live, key, elsewhere.base_url)
        session = opened(live, key, model="e")
        client = talking_to(session)
        monkeypatch.setattr(limits, "MODEL_SESSION_BYTES", 4000)
        for number in range(4):
            say = [{"role": "user", "content": str(number) * 1000}]
            assert client.chat.completions.create(model="e", messages=say).choices[0].message.content
        record = collected(live, session)
        assert (record["call_count"], record["truncated"]) == (4, True)
        assert [call["index"] for call in record["calls"]] == [2, 3]
        assert record["calls"][-1]["messages"][0]["content"] == "3" * 1000
        monkeypatch.undo()
        session = opened(live, key, model="e")
        big = [{"role": "user", "content": "x" * (limits.MODEL_SESSION_BYTES // 2)}]
        client = talking_to(session)
        client.chat.completions.create(model="e", messages=big)
        client.chat.completions.create(model="e", messages=SAY, tools=TOOLS)
        record = collected(live, session)
        assert [(call["left_out"], call["messages"]) for call in record["calls"]] == [(True, []), (False, SAY)]
        assert record["calls"][1]["tools"] == TOOLS
        assert record["truncated"]


def test_what_an_endpoint_answers_or_refuses_is_recorded(live, key):
    answers = [web.Response(status=500, text="broken"), "fine"]
    with fake_model(lambda body: answers.pop(0)) as elsewhere:
        endpoint(live, key, elsewhere.base_url)
        session = opened(live, key, model="e", max_context_tokens=100_000)
        client = talking_to(session)
        with pytest.raises(openai.InternalServerError, match="answered 500"):
            client.chat.completions.create(model="e", messages=SAY)
        assert client.chat.completions.create(model="e", messages=SAY).choices[0].message.content == "fine"
        assert elsewhere.bodies[-1] == {"model": "upstream", "messages": SAY}
        first, second = collected(live, session)["calls"]
        assert (first["error"]["status"], "answered 500" in first["error"]["message"]) == (503, True)
        assert (second["message"]["content"], second["error"], second["token_ids"]) == ("fine", None, None)


def test_an_endpoints_answer_to_a_prompt_beyond_the_context_is_refused(live, key):
    with fake_model("too late") as elsewhere:
        endpoint(live, key, elsewhere.base_url)
        session = opened(live, key, model="e", max_context_tokens=1)
        with pytest.raises(openai.BadRequestError, match="larger max_context_tokens") as caught:
            talking_to(session).chat.completions.create(model="e", messages=SAY)
        assert caught.value.code == "context_length_exceeded"
        (call,) = collected(live, session)["calls"]
        assert call["error"]["code"] == "context_length_exceeded"


def test_an_endpoints_stream_is_passed_on_and_put_together(live, key):
    deltas = [
        {"role": "assistant", "content": "a"},
        {"content": "ü", "reasoning_content": "so"},
        {
            "tool_calls": [
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x"'}}
            ]
        },
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": ": 1}"}},
                {"index": 1, "id": "c2", "function": {"name": "b"}},
            ]
        },
    ]
    chunks = [{"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    chunks.append({"model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    text = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks) + "data: [DONE]\n\n"
    with fake_model(lambda body: web.Response(text=text, content_type="text/event-stream")) as elsewhere:
        endpoint(live, key, elsewhere.base_url)
        session = opened(live, key, model="e")
        heard = talking_to(session).chat.completions.create(model="e", messages=SAY, stream=True)
        assert len(list(heard)) == len(chunks)
        (call,) = collected(live, session)["calls"]
    assert call["message"] == {
        "role": "assistant",
        "content": "aü",
        "reasoning_content": "so",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
            {"id": "c2", "function": {"name": "b"}},
        ],
    }
    assert (call["finish_reason"], call["model"]) == ("tool_calls", "m")
    assert call["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}


def test_a_stream_that_the_client_leaves_is_recorded_as_far_as_it_came(live, key):
    def endless():
        for number in itertools.count():
            yield (
                b"data: "
                + json.dumps({"choices": [{"index": 0, "delta": {"content": f"{number} "}}]}).encode()
                + b"\n\n"
            )

    async def slowly():
        for event in endless():
            yield event
            await asyncio.sleep(0.01)

    with fake_model(lambda body: web.Response(body=slowly(), content_type="text/event-stream")) as elsewhere:
        endpoint(live, key, elsewhere.base_url)
        session = opened(live, key, model="e")
        with talking_to(session).chat.completions.create(model="e", messages=SAY, stream=True) as heard:
            assert next(iter(heard)).choices[0].delta.content == "0 "
        deadline = time.monotonic() + 30
        while not (calls := collected(live, session)["calls"]) and time.monotonic() < deadline:
            pass
    assert calls[0]["message"]["content"].startswith("0 ")
    assert "hung up" in calls[0]["error"]["message"]


def test_a_stream_in_any_pieces_and_of_any_shape_is_read():
    hostile = [
        {"choices": [{"index": "x", "delta": {"content": "a", "parts": [1]}, "logprobs": 3}, 7]},
        {"choices": {"delta": 1}},
        {"choices": [{"delta": {"content": {"b": "c"}, "tool_calls": [{"index": [], "id": 1}]}, "token_ids": [1]}]},
        {"error": {"message": "no"}},
    ]
    text = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in hostile) + b"data: {\n: alive\n"
    reply = StreamedReply()
    for at in range(0, len(text), 3):
        reply.feed(text[at : at + 3])
    (choice,) = reply.whole()["choices"]
    assert choice["message"] == {"content": {"b": "c"}, "parts": [1], "tool_calls": [{"id": 1}]}
    assert choice["token_ids"] == [1]
    assert reply.error == {"message": "no"}
