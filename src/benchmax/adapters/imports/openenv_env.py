"""`openenv:URL`: an environment behind OpenEnv's protocol as a benchmax one. A rollout has its own session.

Its tools are those that the server lists, if it is one of tools (MCP); else the one tool `step`, with the server's
schema of an action. A row is a seed: the prompt is what the server observes after `reset(seed=…)`, and the rollout
resets to the same. The reward is the sum over all steps.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmax.adapters.imports.addresses import class_name, need
from benchmax.adapters.openenv import ADAPTER
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import Messages, ToolDefinition
from benchmax.errors import EnvError, NotFoundError, ToolError, UsageError

DEFAULT_ROWS = 32
"""Seeds that are taken when --data names no number."""
HIDDEN_FIELDS = frozenset({"metadata"})
"""Fields of actions and observations that the model neither writes nor reads."""


@dataclass
class _Session:
    client: Any
    reward: float = 0.0
    done: bool = False


class OpenEnvEnv(BaseEnv):
    """An environment behind a server of OpenEnv's protocol."""

    address: ClassVar[str] = ""
    PRIMARY_REWARD_KEY = "reward"

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._sessions: dict[str, _Session] = {}
        self._with_tools = False

    @classmethod
    def load_dataset(cls, dataset_name: str = str(DEFAULT_ROWS), **kwargs: Any) -> tuple[Any, str | None]:
        """Rows for so many seeds; the server is asked for its first observation of each."""
        if not dataset_name.isdigit():
            raise NotFoundError(f"{dataset_name!r} is no number of rows. Write --data 100 for the seeds from 0 to 99.")
        with _client(cls.address) as client:
            if _shown(client.reset(seed=0).observation) != _shown(client.reset(seed=0).observation):
                raise UsageError(
                    f"The server at {cls.address} begins differently with the same seed, so no prompt can say how a "
                    "rollout begins. Make its reset(seed=…) repeatable."
                )
            return [_row(seed, client.reset(seed=seed).observation) for seed in range(int(dataset_name))], None

    async def list_tools(self) -> list[ToolDefinition]:
        schema = await self._action_schema()
        self._with_tools = "tool_name" in schema.get("properties", {})
        if not self._with_tools:
            about = " ".join(
                (schema.get("description") or "Act in the environment, and read what it observes.").split()
            )
            fields = {name: each for name, each in schema.get("properties", {}).items() if name not in HIDDEN_FIELDS}
            return [ToolDefinition("step", about, {**schema, "properties": fields})]
        async with _client(self.address) as client:
            found = (await client.step({"type": "list_tools"})).observation["tools"]
        return [ToolDefinition(each["name"], each["description"], each["input_schema"]) for each in found]

    async def _action_schema(self) -> dict[str, Any]:
        import aiohttp

        async with aiohttp.ClientSession() as http, http.get(f"{self.address}/schema") as answer:
            answer.raise_for_status()
            schema: dict[str, Any] = (await answer.json())["action"]
            return schema

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        session = self._sessions[rollout_id] = _Session(_client(self.address))
        await session.client.connect()
        first = await session.client.reset(seed=rollout_args["seed"])
        if _shown(first.observation) != rollout_args["first"]:
            raise EnvError(f"The server at {self.address} began differently than with the same seed before.")

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> str:
        session = self._sessions[rollout_id]
        if session.done:
            raise ToolError("The episode is over. Give the final answer.")
        action = (
            {"type": "call_tool", "tool_name": tool_name, "arguments": tool_args} if self._with_tools else tool_args
        )
        result = await session.client.step(action)
        session.reward += float(result.reward or 0.0)
        session.done = bool(result.done)
        text = _answer(result.observation) if self._with_tools else _shown(result.observation)
        return f"{text}\nThe episode is over." if session.done else text

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"reward": self._sessions[rollout_id].reward}

    async def release_rollout(self, rollout_id: str) -> None:
        if session := self._sessions.pop(rollout_id, None):
            await session.client.close()


def _client(address: str) -> Any:
    from openenv.core.generic_client import GenericEnvClient

    return GenericEnvClient(base_url=address)


def _row(seed: int, observation: dict[str, Any]) -> dict[str, Any]:
    first = _shown(observation)
    return {"prompt": first, "seed": seed, "init_rollout_args": {"seed": seed, "first": first}}


def _shown(observation: dict[str, Any]) -> str:
    """An observation as the model reads it: its only text, or all of its fields."""
    seen = {key: each for key, each in observation.items() if key not in HIDDEN_FIELDS and each not in (None, [], {})}
    texts = [value for value in seen.values() if isinstance(value, str)]
    return texts[0] if len(seen) == len(texts) == 1 else json.dumps(seen, ensure_ascii=False, sort_keys=True)


def _answer(observation: dict[str, Any]) -> str:
    """What a tool of the server answered; its failure is raised for the model to read."""
    if error := observation.get("error"):
        raise ToolError(str(error.get("message", error)))
    result = observation.get("result")
    data = result.get("data") if isinstance(result, dict) and "data" in result else result
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def environment(address: str) -> type[BaseEnv]:
    """The class for `openenv:URL`."""
    need(ADAPTER.pin)
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"openenv:{address} is no address. Write the server's: openenv:http://127.0.0.1:8000")
    members = {"address": address.rstrip("/"), "__module__": __name__}
    return type(class_name("open", "env", address.partition("//")[2]), (OpenEnvEnv,), members)
