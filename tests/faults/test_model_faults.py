"""F10: each fault of a model server becomes its typed error, within the budget. L1: many conversations at once."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import socket
import time
import traceback
from base64 import b64encode
from email.utils import formatdate

import aiohttp
import pytest
from aiohttp import web

from benchmax import limits
from benchmax.errors import (
    ContextExceeded,
    ModelError,
    ModelProtocolError,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
)
from benchmax.models import HttpModel
from benchmax.retries import retry_after
from benchmax.testing import FakeModelServer, Fault

KEY = "sk-very-secret-0123456789"


def ask(text="?"):
    return [{"role": "user", "content": text}]


async def ask_once(url, **options):
    options = {"backoff": 0.01, "timeout": 60.0, **options}
    async with HttpModel("the-model", url, KEY, **options) as model:
        return await model.converse().reply(ask())


async def failure(url, kind, **options):
    """The error of one turn, checked for the key and for surviving a pickle."""
    with pytest.raises(kind) as caught:
        await ask_once(url, **options)
    error = caught.value
    assert type(error) is kind
    assert KEY not in repr(error)
    assert KEY not in "".join(traceback.format_exception(error))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    return error


@pytest.mark.parametrize("kind", ["reset", "error", "html", "truncated", "empty_choices", "rate_limit"])
async def test_a_passing_fault_is_retried(kind):
    faults = [Fault(kind, 0.05)] * 3
    async with FakeModelServer("fine", faults=faults) as server:
        assert (await ask_once(server.base_url)).message["content"] == "fine"
    assert server.requests == 4


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("reset", ModelUnavailable),
        ("error", ModelUnavailable),
        ("html", ModelProtocolError),
        ("truncated", ModelProtocolError),
        ("empty_choices", ModelProtocolError),
        ("rate_limit", ModelRateLimited),
    ],
)
async def test_a_lasting_fault_ends_in_its_error_after_the_tries(kind, error):
    async with FakeModelServer(faults=[Fault(kind, 0.05)] * 10) as server:
        told = await failure(server.base_url, error, tries=3)
    assert server.requests == 3
    assert "After 3 tries" in str(told)


async def test_a_stall_ends_at_the_deadline():
    async with FakeModelServer(faults=["stall"]) as server:
        start = time.perf_counter()
        told = await failure(server.base_url, ModelTimeout, timeout=0.5)
        assert 0.5 <= time.perf_counter() - start < 30  # the server stalls for 60 s
    assert "within 0.5 s" in str(told)


async def test_tries_before_a_stall_share_its_deadline():
    async with FakeModelServer(faults=["error", "stall"]) as server:
        start = time.perf_counter()
        told = await failure(server.base_url, ModelTimeout, timeout=3.0)
        assert time.perf_counter() - start < 30
    assert "out of memory" in str(told)


async def test_a_burst_of_errors_never_outlives_the_deadline():
    async with FakeModelServer(faults=["error"] * 1000) as server:
        start = time.perf_counter()
        with pytest.raises((ModelUnavailable, ModelTimeout)):  # whether the time ends in a pause or in a try is chance
            await ask_once(server.base_url, tries=1000, timeout=1.0, backoff=0.2)
        assert time.perf_counter() - start < 30  # a thousand tries take an hour
    assert server.requests < 100


async def test_retry_after_is_honoured():
    async with FakeModelServer(faults=[Fault("rate_limit", 1.0)]) as server:
        start = time.perf_counter()
        await ask_once(server.base_url)
        assert 1.0 <= time.perf_counter() - start < 60


async def test_a_pause_longer_than_the_deadline_is_not_waited():
    async with FakeModelServer(faults=[Fault("rate_limit", 200)]) as server:
        start = time.perf_counter()
        told = await failure(server.base_url, ModelRateLimited, timeout=100.0)
        assert time.perf_counter() - start < 60
    assert told.retry_after == 200
    assert server.requests == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("2", 2.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("inf", None), ("nan", None), ("", None)],
)
def test_retry_after_in_seconds(value, seconds):
    assert retry_after({"Retry-After": value}) == seconds


def test_retry_after_as_a_date():
    assert 900 < retry_after({"Retry-After": formatdate(time.time() + 1000, usegmt=True)}) <= 1000
    assert retry_after({"Retry-After": formatdate(0, usegmt=True)}) == 0.0


async def test_the_wrong_content_type_is_no_fault():
    async with FakeModelServer(faults=["wrong_type"]) as server:
        assert (await ask_once(server.base_url)).message["content"] == "ok"
    assert server.requests == 1


async def test_connection_refused():
    with socket.socket() as silent:  # held, so that nobody else takes it, and never listened on
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        told = await failure(f"http://127.0.0.1:{port}/v1", ModelUnavailable, tries=2)
    assert "Check that the server is up" in str(told)


async def test_a_name_that_does_not_resolve():
    told = await failure("http://no-such-host.invalid/v1", ModelUnavailable, tries=2)
    assert "no-such-host.invalid" in str(told)


async def test_a_server_without_tls():
    async with FakeModelServer() as server:
        await failure(server.base_url.replace("http:", "https:"), ModelUnavailable, tries=2)
    assert server.requests == 0


def refusing(status, body, headers=None):
    text = body if isinstance(body, str) else json.dumps(body)
    return FakeModelServer(lambda _: web.Response(status=status, text=text, headers=headers))


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (302, "new address"),
        (400, "Correct the request"),
        (401, "api_key you gave"),
        (403, "api_key you gave"),
        (404, "'the-model'"),
        (422, "Correct the request"),
    ],
)
async def test_a_refusal_is_told_at_once(status, says):
    async with refusing(status, {"error": {"message": f"no, {KEY}\x1b[31m"}}) as server:
        told = await failure(server.base_url, ModelRejected)
    assert server.requests == 1
    assert told.status == status
    assert says in str(told)
    assert "no, [secret]" in str(told)
    assert "\x1b" not in str(told)


async def test_a_refused_key_names_its_variable(monkeypatch):
    monkeypatch.setenv("MY_MODEL_KEY", KEY)
    async with (
        refusing(401, "go away") as server,
        HttpModel("m", server.base_url, key_variable="MY_MODEL_KEY") as model,
    ):
        with pytest.raises(ModelRejected, match="Check the key in MY_MODEL_KEY"):
            await model.converse().reply(ask())


async def test_the_key_is_hidden_where_an_excerpt_would_cut_it():
    async with FakeModelServer(lambda _: web.Response(text="x" * 190 + KEY)) as server:
        told = await failure(server.base_url, ModelProtocolError, tries=1)
    assert "sk-very" not in str(told)


@pytest.mark.parametrize("written", [b64encode(KEY.encode()).decode(), KEY.encode().hex(), f"{KEY[:12]}…", KEY.upper()])
async def test_the_key_is_hidden_however_it_is_written(written):
    async with refusing(400, f"key: {written}") as server:
        told = await failure(server.base_url, ModelRejected)
    assert written.rstrip("…") not in str(told)


async def test_secrets_in_the_url_and_in_headers_are_hidden():
    async with FakeModelServer(lambda _: web.Response(status=400, text="token-in-header pass-in-url")) as server:
        url = server.base_url.replace("http://", "http://me:pass-in-url@")
        async with HttpModel("m", url, headers={"X-Key": "Bearer token-in-header"}) as model:
            with pytest.raises(ModelRejected) as caught:
                await model.converse().reply(ask())
            assert "pass-in-url" not in repr(model)
    assert "in-header" not in str(caught.value)
    assert "pass-in-url" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
        (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, …"}),
        (400, {"error": {"message": "The decoder prompt (length 9) is longer than the maximum model length of 8"}}),
        (400, {"error": {"code": 400, "message": "the request exceeds the available context size. …"}}),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "x"}}),
        (413, "Payload Too Large"),
        (500, {"error": {"message": "context size exceeded"}}),
    ],
)
async def test_a_conversation_that_does_not_fit(status, body):
    async with refusing(status, body) as server:
        await failure(server.base_url, ContextExceeded)
    assert server.requests == 1


async def test_no_quota_left_is_not_retried():
    async with refusing(429, {"error": {"code": "insufficient_quota", "message": "pay"}}) as server:
        assert "billing" in str(await failure(server.base_url, ModelRejected))
    assert server.requests == 1


async def test_a_refusal_inside_a_success():
    async with FakeModelServer(lambda _: web.json_response({"error": {"code": 429, "message": "busy"}})) as server:
        await failure(server.base_url, ModelRateLimited, tries=2)
    assert server.requests == 2


async def test_an_endless_answer_is_cut_off(monkeypatch):
    monkeypatch.setattr(limits, "MODEL_RESPONSE_BYTES", 1_000_000)
    async with FakeModelServer(lambda _: "x" * 2_000_000) as server:
        assert "larger than 1000000 bytes" in str(await failure(server.base_url, ModelProtocolError, tries=1))


async def test_cancelling_a_call_is_never_swallowed():
    asked, release = asyncio.Event(), asyncio.Event()

    async def never(_):
        asked.set()
        await release.wait()
        return "late"

    async with FakeModelServer(never) as server, HttpModel("m", server.base_url) as model:
        turn = asyncio.create_task(model.converse().reply(ask()))
        await asked.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        release.set()


async def test_cancelling_a_pause_is_never_swallowed():
    async with FakeModelServer(faults=[Fault("rate_limit", 90.0)]) as server, HttpModel("m", server.base_url) as model:
        turn = asyncio.create_task(model.converse().reply(ask()))
        while not server.requests:
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError) as caught:
            await asyncio.wait_for(turn, 0.3)
    assert not isinstance(caught.value, ModelError)
    assert server.requests == 1


async def bare_loop(url, conversations, turns):
    """What any client must at least do: post the history, read the JSON."""

    async def talk(session):
        history = []
        for turn in range(turns):
            history += ask(f"turn {turn}")
            async with session.post(url, data=json.dumps({"model": "m", "messages": history})) as response:
                history.append(json.loads(await response.read())["choices"][0]["message"])

    connector = aiohttp.TCPConnector(limit=512)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(talk(session) for _ in range(conversations)))


async def our_loop(url, conversations, turns):
    async def talk(model):
        conversation = model.converse()
        for turn in range(turns):
            await conversation.reply(ask(f"turn {turn}"))

    async with HttpModel("m", url) as model:
        await asyncio.gather(*(talk(model) for _ in range(conversations)))


async def test_many_conversations_cost_little_more_than_a_bare_client():
    """In processor time, the server's included, which both pay; the best of three rounds each."""
    everyone = asyncio.Barrier(256)

    async def answer(_):
        await everyone.wait()  # fewer at once are never answered
        return "fine"

    bare, ours = [], []
    gc.collect()
    gc.freeze()  # or a collection of all that other tests left falls into some rounds, for most of a second
    async with FakeModelServer(answer) as server:
        for _ in range(3):
            start = time.process_time()
            await bare_loop(f"{server.base_url}/chat/completions", 256, 4)
            bare.append(time.process_time() - start)
            start = time.process_time()
            await our_loop(server.base_url, 256, 4)
            ours.append(time.process_time() - start)
    gc.unfreeze()
    assert server.requests == 3 * 2 * 256 * 4
    assert server.max_in_flight == 256
    assert min(ours) <= 2 * min(bare)


async def test_every_conversation_survives_a_flaky_server():
    faults = ["error", "reset", "truncated", "html"] * 10
    async with (
        FakeModelServer("fine", faults=faults) as server,
        HttpModel("m", server.base_url, backoff=0.05, tries=8) as model,
    ):
        replies = await asyncio.gather(*(model.converse().reply(ask()) for _ in range(64)), return_exceptions=True)
    assert not [reply for reply in replies if isinstance(reply, ModelError)]
    assert server.requests == 64 + 40
