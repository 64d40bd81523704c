"""verifiers on our environments: vLLM's endpoint for tokens with a script behind it, and verifiers' own runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from aiohttp import web
from renderers import DefaultRendererConfig
from verifiers.v1.clients import ModelContext

from trainer_world import Template, tokenizer


@asynccontextmanager
async def token_server(next_turn: Any, finish: str = "stop", context: int | None = None) -> AsyncIterator[str]:
    """vLLM's `/inference/v1/generate`; `next_turn` maps a prompt's ids to sampled ids and their log-probs.

    It says that it takes `context` tokens, if given.
    """

    async def generate(request: web.Request) -> web.Response:
        ids, logprobs = next_turn((await request.json())["token_ids"])
        content = [{"token": f"token_id:{i}", "logprob": p} for i, p in zip(ids, logprobs, strict=True)]
        choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": finish}
        return web.json_response({"request_id": "1", "choices": [choice]})

    async def models(request: web.Request) -> web.Response:
        told = {"id": "scripted", "object": "model", "max_model_len": context}
        return web.json_response({"object": "list", "data": [told]})

    app = web.Application()
    app.router.add_post("/inference/v1/generate", generate)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def tokens_of(template: Template, folder: Path) -> str:
    """The tokenizer of a template in a folder, as a trainer names its model."""
    tokenizer(template).save_pretrained(folder)
    return str(folder)


def training(url: str, model: str, renderer: Any = None) -> ModelContext:
    """How prime-rl asks for turns: token ids by way of a renderer."""
    client = vf.TrainClientConfig(base_url=url, renderer_model_name=model, renderer=renderer or DefaultRendererConfig())
    return ModelContext(client=client, model="scripted", sampling=vf.SamplingConfig())


def evaluating(url: str) -> ModelContext:
    client = vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY")
    return ModelContext(client=client, model="scripted", sampling=vf.SamplingConfig())


def rows_file(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def config(env: str, data: str | None, **more: Any) -> vf.EnvConfig:
    """The `env` block of a run."""
    agent = {"harness": {"id": "benchmax-verifiers", **more.pop("harness", {})}, **more.pop("agent", {})}
    taskset = {"id": "benchmax-verifiers", "env": env, "data": data}
    return vf.resolve_env_config({"taskset": taskset, "agent": agent, **more})


async def run(settings: vf.EnvConfig, ctx: ModelContext, times: int = 1) -> list[vf.Episode]:
    """Every task of the environment so many times, as `vf-eval` and prime-rl's workers play them."""
    env = vf.load_environment(settings)
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task, times)]
        return list(await asyncio.gather(*(env.run_slot(slot, ctx) for slot in slots)))
