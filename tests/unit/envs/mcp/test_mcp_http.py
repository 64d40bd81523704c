"""The session with a server over HTTP: streams, answers that come late or elsewhere, servers that are not ready."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientTimeout, web

from benchmax.envs.mcp.client import http_session
from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.mcp.client.mcp_session import NoAnswer, RpcError
from benchmax.errors import McpError
from benchmax.net.ports import free_port

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "it"}}


def result(number: Any, **said: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": said}).encode()


async def events_of(request: web.Request, *events: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for each in events:
        await response.write(each)
    return response


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The address of an HTTP server."""
    app = web.Application()
    app.router.add_route("*", "/mcp", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def test_a_stream_of_events_in_pieces_of_every_size() -> None:
    long = "a" * 300_000

    async def answer(request: web.Request) -> web.StreamResponse:
        number = (await request.json())["id"]
        message = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": long}]}})
        events = f": hello\r\n\r\nid: 1\r\ndata:\r\n\r\nevent: message\r\ndata: {message}\r\n\r\n".encode()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for at in range(0, len(events), 1_009):
            await response.write(events[at : at + 1_009])
        return response

    async with serving(answer) as url:
        session = HttpSession("long", url, {})
        result = await session.request("tools/call", {}, 60.0)
        assert result["content"][0]["text"] == long
        await session.close()


async def test_requests_of_a_server_in_its_stream_are_answered() -> None:
    replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if "method" not in message:
            replies.put_nowait(message)
            return web.Response(status=202)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, method in enumerate(("ping", "sampling/createMessage")):
            asked = json.dumps({"jsonrpc": "2.0", "id": f"s{number}", "method": method})
            await response.write(f"data: {asked}\n\n".encode())
        got = [await replies.get() for _ in range(2)]
        said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"got": got}})
        await response.write(f"data: {said}\n\n".encode())
        return response

    async with serving(answer) as url:
        session = HttpSession("asks", url, {})
        ping, sampling = (await session.request("tools/call", {}, 10.0))["got"]
        await session.close()
    assert ping == {"jsonrpc": "2.0", "id": "s0", "result": {}}
    assert (sampling["id"], sampling["error"]["code"]) == ("s1", -32601)


async def test_a_request_over_http_may_take_as_long_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiohttp.client.DEFAULT_TIMEOUT", ClientTimeout(total=0.05))  # as five minutes are

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {"slow": True}})

    async with serving(answer) as url:
        session = HttpSession("slow", url, {})
        assert await session.request("tools/call", {}, 60.0) == {"slow": True}
        await session.close()


async def test_a_server_that_cannot_be_reached_is_reported_with_the_reason() -> None:
    session = HttpSession("gone", f"http://127.0.0.1:{free_port()}/mcp", {})
    with pytest.raises(NoAnswer, match=r"within 0.2 s: Cannot connect.*Connect call failed"):
        await session.open(0.2)
    await session.close()


async def test_what_a_server_asks_on_a_stream_of_its_own_is_answered() -> None:
    replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    ends = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            stream = await events_of(request, b'data: {"jsonrpc": "2.0", "id": "s", "method": "roots/list"}\n\n')
            await ends.wait()
            return stream
        message = await request.json()
        if message.get("method") == "initialize":
            body = result(message["id"], **HELLO)
            return web.Response(body=body, content_type="application/json", headers={"Mcp-Session-Id": "one"})
        if "method" not in message:
            replies.put_nowait(message)
        if message.get("method") != "tools/call":
            return web.Response(status=202)
        return web.Response(body=result(message["id"], got=await replies.get()), content_type="application/json")

    async with serving(answer) as url:
        session = HttpSession("asks", url, {})
        await session.open(10.0)
        got = (await session.call("it", {}, 10.0))["got"]
        await session.close()
        ends.set()
    assert (got["id"], got["error"]["code"]) == ("s", -32601)


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_stream_that_ends_before_its_answer_is_continued(resumes: bool) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            asked.append(request.headers["Last-Event-ID"])
            if not resumes:
                return web.Response(status=405)
            last = len(asked) == 2
            return await events_of(
                request, b"id: e%d\ndata: %s\n\n" % (len(asked), result(1, late=True) if last else b"")
            )
        return await events_of(request, b"id: e0\nretry: 1\ndata:\n\n")

    async with serving(answer) as url:
        session = HttpSession("late", url, {})
        if resumes:
            assert await session.request("tools/call", {}, 10.0) == {"late": True}
            assert asked == ["e0", "e1"]
        else:
            with pytest.raises(McpError, match="ended its answer early"):
                await session.request("tools/call", {}, 10.0)
        await session.close()


async def test_a_server_that_is_not_ready_is_waited_for() -> None:
    tries: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        tries.append(message["method"])
        if len(tries) == 1:
            return web.Response(status=503)
        if len(tries) == 2:
            assert request.transport is not None
            request.transport.close()
        if "id" not in message:
            return web.Response(status=202)
        return web.Response(body=result(message["id"], **HELLO), content_type="application/json")

    async with serving(answer) as url:
        session = HttpSession("slow", url, {})
        await session.open(10.0)
        assert tries == [*["initialize"] * 3, "notifications/initialized"]
        await session.close()


async def test_one_that_never_is_ready_is_reported_with_its_answer() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=502)

    async with serving(answer) as url:
        session = HttpSession("broken", url, {})
        with pytest.raises(NoAnswer, match=r"within 0\.3 s: it answered 502 Bad Gateway"):
            await session.open(0.3)
        await session.close()


async def test_a_call_that_is_given_up_is_cancelled_on_the_server() -> None:
    given_up: list[int] = []
    told = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if message["method"] == "notifications/cancelled":
            given_up.append(message["params"]["requestId"])
            told.set()
            return web.Response(status=202)
        await told.wait()
        return web.Response(body=result(message["id"]), content_type="application/json")

    async with serving(answer) as url:
        session = HttpSession("hangs", url, {})
        with pytest.raises(NoAnswer):
            await session.request("tools/call", {}, 0.1)
        await asyncio.wait_for(told.wait(), 60.0)
        assert given_up == [1]
        assert await session.request("tools/call", {}, 60.0) == {}
        await session.close()


async def test_a_connection_that_was_idle_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "IDLE_SECONDS", 0.0)
    seen: set[Any] = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if request.transport in seen:  # it was being closed as the request came
            request.transport.close()
        seen.add(request.transport)
        return web.Response(body=result((await request.json())["id"], said="well"), content_type="application/json")

    async with serving(answer) as url:
        session = HttpSession("impatient", url, {})
        for _ in range(3):
            assert await session.request("tools/call", {}, 10.0) == {"said": "well"}
        await session.close()


async def test_an_answer_that_asks_for_more_is_an_error() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        asks = result((await request.json())["id"], resultType="input_required", inputRequests={})
        return web.Response(body=asks, content_type="application/json")

    async with serving(answer) as url:
        session = HttpSession("asks", url, {})
        with pytest.raises(RpcError, match="wants more from its user"):
            await session.call("it", {}, 10.0)
        await session.close()
