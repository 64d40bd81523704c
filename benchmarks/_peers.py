"""The work of `rollouts.py` in other frameworks; run by their own interpreter, never by benchmax's.

    python _peers.py inspect_ai|verifiers BASE_URL COUNT

Their pins exclude each other (openai 2 and 3), so each may need a virtualenv of its own.
Prints one line of JSON: {"version", "cpu_ms"}; the CPU is that of this process and of its children, per rollout.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import tempfile
import time
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType
from typing import Any

TURNS = 5
QUESTION = "What is 1 + 2 + 3 + 4 + 5? Add two numbers at a time."


def spent() -> float:
    """CPU seconds so far, children included."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def inspect_ai(url: str, count: int) -> float:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def add():
        async def execute(a: int, b: int) -> str:
            """Add two integers.

            Args:
                a: The first.
                b: The second.
            """
            return str(a + b)

        return execute

    def play(samples: int) -> None:
        task = Task(
            dataset=[Sample(input=QUESTION, target="15") for _ in range(samples)],
            solver=[use_tools(add()), generate()],
            scorer=match(),
        )
        with tempfile.TemporaryDirectory() as logs:
            [log] = eval(
                task, model=f"openai/play-{TURNS}", model_base_url=url, model_args={"responses_api": False},
                log_dir=logs, display="none", max_samples=64, max_connections=64,
            )  # fmt: skip
            answers = [sum(m.role == "assistant" for m in sample.messages) for sample in log.samples or ()]
        if log.status != "success" or answers != [TURNS] * samples:
            sys.exit(f"inspect_ai did not do the work: {log.status}, {log.error}, turns {set(answers)}")

    play(8)
    began = spent()
    play(count)
    return (spent() - began) * 1000 / count


def verifiers(url: str, count: int) -> float:
    """The tools run in this process: the default harness starts a process for each rollout and costs far more."""
    import aiohttp
    import verifiers.v1 as vf
    from verifiers.v1.agent import Agent
    from verifiers.v1.clients import EvalClientConfig
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.harness import Harness
    from verifiers.v1.runtimes import ProgramResult, SubprocessConfig

    class InProcess(Harness[vf.HarnessConfig]):
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, **rest):
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}) as session:
                await converse(session, f"{endpoint.rstrip('/')}/chat/completions", ctx.model)
            return ProgramResult(0, "", "")

    class Sums(vf.Task):
        @vf.reward
        async def correct(self, trace) -> float:
            return 1.0

    plugin = ModuleType("sums_harness")
    plugin.__dict__.update(InProcess=InProcess, __all__=["InProcess"])
    sys.modules["sums_harness"] = plugin
    plugin.__spec__ = ModuleSpec("sums_harness", None)
    config = AgentConfig(
        harness=vf.HarnessConfig(id="sums_harness"), runtime=SubprocessConfig(), model=f"play-{TURNS}",
        client=EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY"),
    )  # fmt: skip

    async def play(samples: int) -> None:
        async with Agent(config) as agent:
            runs = (agent.run(Sums(vf.TaskData(idx=i, prompt=QUESTION))) for i in range(samples))
            traces = await asyncio.gather(*runs)
        if not all(trace.ok for trace in traces):
            sys.exit(f"verifiers did not do the work: {next(t.errors for t in traces if not t.ok)}")

    asyncio.run(play(4))
    began = spent()
    asyncio.run(play(count))
    return (spent() - began) * 1000 / count


async def converse(session: Any, url: str, model: str) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": parameters}}]
    while True:
        async with session.post(url, json={"model": model, "messages": messages, "tools": tools}) as response:
            reply = json.loads(await response.read())["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            return
        for call in reply["tool_calls"]:
            numbers = json.loads(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(sum(numbers.values()))})


def main() -> None:
    name, url, count = sys.argv[1:]
    logging.disable(logging.WARNING)
    os.environ["OPENAI_API_KEY"] = "none"
    try:
        cpu_ms = {"inspect_ai": inspect_ai, "verifiers": verifiers}[name](url, int(count))
    except Exception as error:  # inspect_ai hides its own from an ordinary traceback
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
    print(json.dumps({"version": version(name.replace("_", "-")), "cpu_ms": cpu_ms}))


if __name__ == "__main__":
    main()
