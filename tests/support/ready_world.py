"""For tests of ready environments: models that play demonstrations, call tools at random, and cheat."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from benchmax.envs.demonstration import turn_after
from benchmax.envs.types import Example, ToolDefinition
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_rollout


def demonstrator(env: Any, example: Example) -> ScriptedModel:
    """A model that plays the solution of one example."""

    async def turn(messages: list[Any]) -> Any:
        said = messages[len(example["prompt_messages"]) :]
        results = [[message["content"]] for message in said if message["role"] == "tool"]
        return await turn_after(env.demonstrate, example, results)

    return ScriptedModel(turn)


async def play_all(env: Any, chosen: list[Example], model_of: Callable[[Example], Any] | None = None) -> list[Any]:
    """Play examples at once, each with a model of its own: the demonstration's, unless told."""
    async with EnvHost(env) as host:
        models = [demonstrator(env, each) if model_of is None else model_of(each) for each in chosen]
        return await asyncio.gather(
            *(run_rollout(host, each, model) for each, model in zip(chosen, models, strict=True))
        )


def random_caller(tools: Sequence[ToolDefinition], example: Example, calls: int = 3) -> ScriptedModel:
    """A model that calls tools with words that it read, and answers with one of those."""
    rng = random.Random(str(example["id"]))

    def turn(messages: list[Any]) -> Any:
        seen = [word for message in messages for word in str(message.get("content")).split()]
        if sum(message["role"] == "tool" for message in messages[len(example["prompt_messages"]) :]) >= calls:
            return f"<answer>{rng.choice(seen).strip('.,:;')}</answer>"
        tool = rng.choice(list(tools))
        properties = (tool.input_schema or {})["properties"]
        given = {
            name: rng.randint(1, 5) if each.get("type") == "integer" else rng.choice(seen)
            for name, each in properties.items()
        }
        call = {"name": tool.name, "arguments": json.dumps(given)}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    return ScriptedModel(turn)
