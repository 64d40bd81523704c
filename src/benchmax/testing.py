"""For tests of environments and of benchmax itself: a scripted model, and a real server with faults.

async with FakeModelServer("42", faults=["error", Fault("rate_limit", 0.5)]) as server:
    model = HttpModel("any", server.base_url)
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from benchmax.errors import ConfigError
from benchmax.models.base import Reply, Usage
from benchmax.models.scripted import ScriptedModel

if TYPE_CHECKING:
    from aiohttp import web

    from benchmax.doctor import Diagnosis
    from benchmax.envs.base_env import BaseEnv
    from benchmax.envs.datasets.readers import Source

__all__ = ["FakeModelServer", "Fault", "FaultKind", "ScriptedModel", "run_env_contract"]

FaultKind: TypeAlias = Literal[
    "stall", "reset", "rate_limit", "error", "html", "truncated", "empty_choices", "wrong_type"
]
ServerAnswer: TypeAlias = "str | dict[str, Any] | Reply | web.StreamResponse"
ServerScript: TypeAlias = "str | Callable[[dict[str, Any]], ServerAnswer | Awaitable[ServerAnswer]]"


@dataclass(frozen=True, slots=True)
class Fault:
    """One bad answer.

    stall: none, for `seconds`; reset: the connection breaks within the body; rate_limit: 429 with
    `Retry-After: seconds`; error: 500; html: 200 with a page; truncated: 200 with half the JSON;
    empty_choices: 200 without a choice; wrong_type: a good answer called text/plain.
    """

    kind: FaultKind
    seconds: float = 60.0

    def __post_init__(self) -> None:
        known = get_args(FaultKind)
        if self.kind not in known:
            raise ConfigError(f"There is no fault {self.kind!r}. Use one of: {', '.join(known)}.")


class FakeModelServer:
    """An OpenAI-compatible server on the loopback.

    `script` is a text, or a function. The function receives the request's JSON body as a dict
    (`body["messages"]`, `body["model"]`, `body.get("tools")` …) and returns a text, a message, a Reply, a
    whole body (a dict with `choices`) or an aiohttp response; it may be async. When it raises, the response
    is 500, and the first such error is raised at the end of `async with`. `faults` come first, one for each
    request.
    """

    def __init__(
        self,
        script: ServerScript = "ok",
        *,
        latency: float = 0.0,
        faults: Iterable[Fault | FaultKind] = (),
        keep: int = 1000,
    ) -> None:
        self.script = script
        self.latency = latency
        self.faults = deque(fault if isinstance(fault, Fault) else Fault(fault) for fault in faults)
        self.requests = 0
        self.max_in_flight = 0
        self.bodies: deque[dict[str, Any]] = deque(maxlen=keep)
        """The last requests, oldest first."""
        self.headers: deque[dict[str, str]] = deque(maxlen=keep)
        self._in_flight = 0
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._script_error: Exception | None = None

    @property
    def base_url(self) -> str:
        assert self._runner is not None, "the server runs inside `async with` only"
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/v1"

    async def __aenter__(self) -> Self:
        from aiohttp import web

        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._script_error is not None:
            raise self._script_error

    async def _models(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        return web.json_response({"object": "list", "data": [{"id": "fake", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        try:
            body = json.loads(await request.read())
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
            if self.faults:
                return await self._fail(self.faults.popleft(), request)
            if self.latency:
                await asyncio.sleep(self.latency)
            return await self._answer(body)
        finally:
            self._in_flight -= 1

    async def _answer(self, body: dict[str, Any]) -> web.StreamResponse:
        from aiohttp import web

        try:
            answer = self.script if isinstance(self.script, str) else self.script(body)
            answer = await answer if inspect.isawaitable(answer) else answer
            return answer if isinstance(answer, web.StreamResponse) else web.json_response(_completion(answer))
        except web.HTTPException:
            raise  # an answer, to aiohttp
        except Exception as error:
            self._script_error = self._script_error or error
            return web.json_response({"error": {"message": f"the script raised {error!r}"}}, status=500)

    async def _fail(self, fault: Fault, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        good = json.dumps(_completion("ok"))
        match fault.kind:
            case "stall":
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), fault.seconds)
                return web.Response(text=good, content_type="application/json")
            case "reset":
                return await _reset(request, good.encode())
            case "rate_limit":
                headers = {"Retry-After": f"{fault.seconds:g}"}
                return web.json_response({"error": {"message": "slow down"}}, status=429, headers=headers)
            case "error":
                return web.json_response({"error": {"message": "out of memory"}}, status=500)
            case "html":
                return web.Response(text="<!doctype html><title>Sign in</title>", content_type="text/html")
            case "truncated":
                return web.Response(text=good[: len(good) // 2], content_type="application/json")
            case "empty_choices":
                return web.json_response({**_completion("ok"), "choices": []})
            case "wrong_type":
                return web.Response(text=good, content_type="text/plain")


async def _reset(request: web.Request, body: bytes) -> web.StreamResponse:
    from aiohttp import web

    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _completion(answer: str | dict[str, Any] | Reply) -> dict[str, Any]:
    if isinstance(answer, dict) and "choices" in answer:
        return answer
    if not isinstance(answer, Reply):
        given = answer if isinstance(answer, dict) else {"content": answer}
        message: Any = {"role": "assistant", "content": None, **given}
        answer = Reply(message, "tool_calls" if message.get("tool_calls") else "stop", Usage(1, 1))
    prompt, completion = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [{"index": 0, "message": answer.message, "finish_reason": answer.finish}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }


def run_env_contract(
    env_class: type[BaseEnv], rows: Source, env_args: dict[str, Any] | None = None, **options: Any
) -> Diagnosis:
    """For your own tests: examine the environment on `rows`; AssertionError lists what is wrong.

        def test_my_env():
            run_env_contract(MyEnv, rows)

    `options` go to `benchmax.doctor.examine`; warnings are in the diagnosis that is returned.
    """
    from benchmax.doctor import examine_sync

    diagnosis = examine_sync(env_class, env_args, rows=rows, **options)
    if not diagnosis.ok:
        raise AssertionError("\n".join([diagnosis.summary(), *map(str, diagnosis.errors)]))
    return diagnosis
