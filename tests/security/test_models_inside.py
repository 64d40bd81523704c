"""S32: a judge in a sandboxed environment asks the platform's models, and nothing else of the platform."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.remote import Confinement, open_remote_env
from benchmax.models.relay import RELAY, reached_at
from benchmax.platform.runner.children import sandboxing
from benchmax.sandbox.inside.landlock import version as landlock_version

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
    pytest.mark.skipif(landlock_version() < 4, reason="needs Linux 6.7"),
]
REPLY = {"choices": [{"message": {"role": "assistant", "content": '{"score": 1.0}'}, "finish_reason": "stop"}]}


class Judged(BaseEnv):
    async def run_tool(self, rollout_id: str, tool_name: str, **given: Any) -> str:
        """Ask a model at an address, or a path of the relay, as the environment's own code would."""
        import os
        import urllib.error
        import urllib.request

        from benchmax.models.http import HttpModel
        from benchmax.models.relay import RELAY

        if tool_name == "judge":
            async with HttpModel("any", given["url"], "sk-user", tries=1) as model:
                reply = await model.converse().reply([{"role": "user", "content": "Good?"}])
                return str(reply.message["content"])
        base = os.environ[RELAY].split()[1] if tool_name == "relay" else given["url"]
        try:
            with urllib.request.urlopen(base + given["path"], timeout=60) as answer:
                return str(answer.read())
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}"
        except OSError as error:
            return type(error).__name__

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": 1.0}


async def test_a_judge_reaches_the_platforms_models_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, request.headers.get("Authorization", "")))
        return web.json_response(REPLY)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        monkeypatch.setattr(sandboxing, "_from_runner", {"platform": url})
        confined = Confinement(closed_ports=(server.port or 0,))
        with sandboxing.reachable_models(confined) as variables:
            env = await open_remote_env(dump_bundle(Judged), sandbox=confined, variables=variables)
            try:
                assert json.loads(await env.run_tool("r", "judge", url=f"{url}/v1")) == {"score": 1.0}
                local = f"http://localhost:{server.port}/v1"
                assert json.loads(await env.run_tool("r", "judge", url=local)) == {"score": 1.0}
                assert seen == [("POST", "/v1/chat/completions", "Bearer sk-user")] * 2
                for path in ("/v1/keys", "/", "/v1/chat/completions", "/v1/models/../keys", "/v1/models?x=1"):
                    assert await env.run_tool("r", "relay", path=path) == "HTTP 404", path
                assert "choices" in await env.run_tool("r", "relay", path="/v1/models")
                assert await env.run_tool("r", "direct", url=url, path="/v1/models") in ("URLError", "PermissionError")
            finally:
                await env.shutdown()
        assert [each for each in seen if each[1] != "/v1/chat/completions"] == [("GET", "/v1/models", "")]


def test_other_addresses_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RELAY, "http://127.0.0.1:8123 http://127.0.0.1:9")
    assert reached_at("http://localhost:8123/v1") == "http://127.0.0.1:9/v1"
    for url in ("http://127.0.0.1:8124/v1", "https://127.0.0.1:8123/v1", "http://example.org:8123/v1", "no url"):
        assert reached_at(url) == url
