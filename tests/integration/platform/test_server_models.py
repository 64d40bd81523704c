"""The platform's own models: what published clients name by default is answered by them, and the answer says so."""

import base64
import json
import time
from urllib.parse import urlsplit

import httpx2
import openai
import pytest
from aiohttp import web

from benchmax.envs.base_env import BaseEnv
from benchmax.platform.client import RolloutClient
from benchmax.platform.server.app import base_url
from benchmax.platform.server.services import models
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.validation import validate_env
from benchmax.platform.wire.rollout_requests import RolloutLlm
from platform_world import LiveServer
from session_world import bundled, events_of, fake_model, platform_with_a_model
from training_world import store_tiny

pytestmark = pytest.mark.timeout(300)

HOSTED = "https://llm.castform.com/v1"
EXAMPLE = {"prompt": "Count to one.", "answer": "count 1"}
SAY = [{"role": "user", "content": "hello"}]


class PlainEnv(BaseEnv):
    """Without tools: the toy model has no room to be told of any."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(str(task["answer"]) in messages[-1]["content"])}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with platform_with_a_model(tmp_path_factory) as server:
        yield server


@pytest.fixture
def key(live, request):
    return live.key_for(request)


def add_endpoint(live, key, name, url, model="upstream", api_key="sk-upstream"):
    with live.client(key) as client:
        made = client.post("/v1/endpoints", json={"name": name, "baseUrl": url, "model": model, "apiKey": api_key})
    assert made.status_code == 201, made.text


def wire_body(key, **llm):
    """A rollout as published clients ask for it: the hosted address, a hosted name, their own key."""
    env = {name: base64.b64encode(value).decode() for name, value in bundled(PlainEnv).items()}
    given = {"base_url": HOSTED, "api_key": key, "model": "gpt-5.4-nano", "api-version": "", **llm}
    return {"raw_example": EXAMPLE, "env": env, "llm": given, "options": {"max_completion_tokens": 5}}


def test_rollouts_groups_and_validation_with_the_published_defaults_are_played_here(live, key):
    for path in ("/v1/rollout/stream", "/rollout/stream"):
        with live.client(key) as client, client.stream("POST", path, json=wire_body(key), timeout=150) as answer:
            events = events_of(answer)
        assert events[0]["event"] == "rollout_started", events
        assert events[0]["model"] == "toy"
        assert "no model 'gpt-5.4-nano'; toy answers in its place" in events[0]["note"]
        assert (events[-1]["event"], events[-1]["note"]) == ("rollout_completed", events[0]["note"])
    options = {"llm_base_url": HOSTED, "llm_api_key": key}
    with RolloutClient(key, live.url) as client:
        events = client.run_group(EXAMPLE, samples=2, **bundled(PlainEnv), **options)
    assert [event["model"] for event in events] == ["toy", "toy"]
    report = validate_env(PlainEnv, {}, [EXAMPLE], local=False, api_key=key, base_url=live.url, remote_examples=1,
                          verbose=False, **options)  # fmt: skip
    assert report.remote["examples"][0]["error"] is None, report.remote


def test_the_openai_client_talks_to_one_of_the_machine_which_answers_to_hosted_names_too(live, key):
    client = openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0, timeout=150)
    assert "toy" in [model.id for model in client.models.list()]
    assert client.models.retrieve("toy").owned_by == "this machine"
    reply = client.chat.completions.create(model="toy", messages=SAY, max_tokens=4)
    assert reply.model == "toy"
    assert reply.usage.completion_tokens <= 4
    assert not hasattr(reply, "note")
    chunks = list(client.chat.completions.create(model="toy", messages=SAY, max_tokens=4, stream=True))
    assert {chunk.model for chunk in chunks} == {"toy"}
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")

    answer = client.chat.completions.with_raw_response.create(model="gpt-5.4-mini", messages=SAY, max_tokens=2)
    assert answer.headers["x-benchmax-model"] == "toy"
    assert "toy answers in its place" in answer.headers["x-benchmax-note"]
    assert (answer.parse().model, answer.parse().note) == ("toy", answer.headers["x-benchmax-note"])
    with pytest.raises(openai.NotFoundError, match="Did you mean 'toy'"):
        client.chat.completions.create(model="toi", messages=SAY)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        client.chat.completions.create(model="toy", messages=SAY, response_format={"type": "json_object"})


def test_an_endpoint_answers_to_its_name_and_its_model_and_a_default_one_to_every_other(live, key):
    with fake_model("from elsewhere") as elsewhere:
        add_endpoint(live, key, "big", elsewhere.base_url, model="gpt-big")
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0, timeout=60)
        for name in ("big", "gpt-big"):
            reply = client.chat.completions.create(model=name, messages=SAY, max_tokens=7, extra_body={"min_p": 0.1})
            assert reply.choices[0].message.content == "from elsewhere"
        assert elsewhere.bodies[-1] == {"model": "gpt-big", "messages": SAY, "max_tokens": 7, "min_p": 0.1}
        assert {headers["Authorization"] for headers in elsewhere.headers} == {"Bearer sk-upstream"}
        add_endpoint(live, key, "default", elsewhere.base_url, model="gpt-small")
        assert client.chat.completions.create(model="gpt-5.4", messages=SAY).note.endswith(
            "gpt-small answers in its place."
        )
        assert next(model.id for model in client.models.list()) == "default"
        with live.client(key) as http, http.stream("POST", "/v1/rollout/stream", json=wire_body(key)) as answer:
            started = events_of(answer)[0]
        assert started["model"] == "gpt-small"
        assert elsewhere.headers[-1]["Authorization"] == "Bearer sk-upstream"


def test_a_stream_of_an_endpoint_is_passed_on_as_it_comes(live, key):
    lines = [{"choices": [{"index": 0, "delta": {"content": text}}], "id": "c", "model": "m"} for text in ("a", "b")]
    text = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
    with fake_model(lambda body: web.Response(text=text, content_type="text/event-stream")) as elsewhere:
        add_endpoint(live, key, "s", elsewhere.base_url)
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0, timeout=60)
        chunks = client.chat.completions.create(model="s", messages=SAY, stream=True)
        assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "ab"
        assert elsewhere.bodies[-1]["stream"] is True


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (web.Response(status=401, text="bad key sk-upstream"), openai.BadRequestError, r"bad key \[secret\]"),
        (web.Response(status=429, text="later"), openai.RateLimitError, "answered 429"),
        (web.Response(status=500, text="broken"), openai.InternalServerError, "answered 500"),
        (web.Response(text="<html>"), openai.InternalServerError, "not a JSON object"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), openai.BadRequestError, "moved"),
    ],
    ids=["401", "429", "500", "html", "moved"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_an_endpoint_refuses_is_told_without_its_key(live, key, answer, kind, words, stream):
    if stream and "JSON" in words:
        pytest.skip("a stream is not read")
    with fake_model(
        lambda body: web.Response(status=answer.status, text=answer.text, headers=answer.headers)
    ) as server:
        add_endpoint(live, key, "e", server.base_url)
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0, timeout=60)
        with pytest.raises(kind, match=words) as caught:
            client.chat.completions.create(model="e", messages=SAY, stream=stream)
        assert "sk-upstream" not in str(caught.value)


def test_no_runner_is_said(tmp_path, monkeypatch):
    from benchmax.platform.server.services import live_sessions

    monkeypatch.setattr(live_sessions, "NOBODY_SECONDS", 0.3)
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    store_tiny(tmp_path, "toy")
    with LiveServer(tmp_path) as alone, alone.client(alone.user()[1]) as client:
        answer = client.post("/v1/chat/completions", json={"messages": SAY})
        assert answer.status_code == 503
        assert "no runner" in answer.json()["error"]["message"]
        assert client.post("/v1/chat/completions", json={"messages": []}).status_code == 400


def test_a_client_that_leaves_while_the_model_loads_is_noticed(tmp_path, monkeypatch):
    """There is no runner: without a look at the client, the stream would wait for one for ever."""
    from benchmax.platform.server.services import live_sessions

    monkeypatch.setattr(live_sessions, "NOBODY_SECONDS", 10_000.0)
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    store_tiny(tmp_path, "toy")
    with LiveServer(tmp_path) as alone, alone.client(alone.user()[1]) as client:
        opened = client.put("/v1/sessions/s", json={}).json()
        with pytest.raises(httpx2.ReadTimeout):
            client.post(f"{opened['base_url']}/chat/completions", json={"messages": SAY, "stream": True}, timeout=0.5)
        deadline = time.monotonic() + 60
        while not (calls := client.post(f"{opened['base_url']}/collect").json()["calls"]):
            assert time.monotonic() < deadline, "the call is still under way"
    assert calls[0]["error"]["status"] == 503


# Which addresses mean the platform


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "::0", "127.0.0.1", "::1", "192.0.2.7", "2001:db8::7"])
def test_the_address_it_tells_is_one_it_answers_to(host):
    settings = ServerSettings(data=None, host=host, port=8123)
    told = urlsplit(base_url(settings))
    assert told.port == 8123
    assert told.hostname in settings.hosts
    assert models.is_here(settings, told.geturl())


@pytest.mark.parametrize(
    ("url", "own"),
    [
        (HOSTED, True),
        ("https://llm.castform.com", True),
        ("https://api.castform.com/v1", True),
        ("https://LLM.Castform.com:443/v1", True),
        ("http://127.0.0.1:8123/v1", True),
        ("http://localhost:8123", True),
        ("https://lab.example/v1", True),
        ("http://127.0.0.1:8124/v1", False),
        ("https://llm.castform.com.evil.example/v1", False),
        ("https://evil.example/llm.castform.com/v1", False),
        ("https://api.openai.com/v1", False),
        ("http://[::1/v1", False),
    ],
)
def test_addresses_of_the_platform(url, own):
    settings = ServerSettings(data=None, port=8123, public_url="https://lab.example")
    assert (models.is_hosted(url) or models.is_here(settings, url)) == own


def test_without_any_model_the_first_endpoint_answers(live, key, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    user_id = live.user("first@example.org")[0]
    platform = live.app.state.services
    assert models.choose(platform, user_id, RolloutLlm(model="gpt-5")).model == "smollm2-135m", "it is fetched"
    _, own = live.user("first@example.org")
    add_endpoint(live, own, "one", "http://127.0.0.1:9/v1", model="m1")
    chosen = models.choose(platform, user_id, RolloutLlm(base_url=HOSTED, model="gpt-5"))
    assert (chosen.model, chosen.base_url, chosen.api_key) == ("m1", "http://127.0.0.1:9/v1", "sk-upstream")
    assert "sk-upstream" not in repr(chosen)
