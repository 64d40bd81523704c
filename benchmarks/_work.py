"""The work that `rollouts.py` measures: an environment, a model server, and the bare loops that do the same."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import aiohttp

from benchmax import BaseEnv, ToolCall, ToolDefinition, make_example
from benchmax.envs.types import Example, Messages

TURNS = 5
QUESTION = "What is 1 + 2 + 3 + 4 + 5? Add two numbers at a time."
TOOLS = [
    ToolDefinition(
        "add",
        "Add two integers.",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    )
]


class Sums(BaseEnv):
    """The work: a tool that adds, a reward that looks at the last message."""

    def __init__(self, padding: int = 0, pause: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.padding = "x" * padding
        self.pause = pause

    async def list_tools(self) -> list[ToolDefinition]:
        return TOOLS

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> str:
        if self.pause and (waiting := self.pause()):
            await waiting
        return add(**tool_args) + self.padding

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, float]:
        return {"correct": float(messages[-1].get("content") == "15")}


def add(a: int, b: int) -> str:
    return str(a + b)


@cache
def examples(count: int) -> list[Example]:
    """Made once: reading a dataset is not part of a rollout."""
    return [make_example([{"role": "user", "content": QUESTION}], {"ground_truth": str(i)}) for i in range(count)]


def script(turns: int) -> list[str | ToolCall]:
    return [ToolCall("add", f'{{"a": {i}, "b": {i + 1}}}') for i in range(turns - 1)] + ["15"]


# The server


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """A tool call, until there are as many results as the model's name says: `play-5` ends with turn 5."""
    done = sum(message["role"] == "tool" for message in request["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": "15"}
    if last := done + 1 < int(request["model"].rpartition("-")[2]):
        function = {"name": "add", "arguments": f'{{"a": {done}, "b": {done + 1}}}'}
        message = {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"call_{done}", "type": "function", "function": function}
        ]}  # fmt: skip
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if last else "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60},
    }  # fmt: skip


def serve(told: Any) -> None:
    """Runs in a process of its own until its parent ends it."""
    from benchmax.testing import FakeModelServer

    async def forever() -> None:
        async with FakeModelServer(answer, keep=1) as server:
            told.send(server.base_url)
            await asyncio.Event().wait()

    asyncio.run(forever())


@contextmanager
def server() -> Iterator[str]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that a server that never came up ends the wait for it
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


# The bare loops

BARE_TOOLS = [
    {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.input_schema}}
    for t in TOOLS
]


async def bare_http(session: aiohttp.ClientSession, url: str) -> None:
    """What anybody would write first: post, parse, run the tool, append."""
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        request = {"model": f"play-{TURNS}", "messages": messages, "tools": BARE_TOOLS, "max_tokens": 1024}
        async with session.post(f"{url}/chat/completions", json=request) as response:
            reply = json.loads(await response.read())["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            return
        for call in reply["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": add(**arguments)})


async def bare_loop(turns: int = TURNS) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for said in script(turns):
        await asyncio.sleep(0)
        if isinstance(said, str):
            messages.append({"role": "assistant", "content": said})
            return
        messages.append({"role": "assistant", "content": "", "tool_calls": [said.to_dict()]})
        messages.append({"role": "tool", "content": add(**json.loads(said.arguments))})


async def together(play: Callable[[], Awaitable[None]], count: int, at_once: int) -> None:
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await play()

    await asyncio.gather(*(worker() for _ in range(at_once)))
