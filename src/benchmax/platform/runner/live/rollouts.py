"""Rollouts of a live session: of one example, or groups of several, reported as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from benchmax.envs.example_id import make_example
from benchmax.envs.remote import RemoteEnv
from benchmax.envs.types import ChatMessage, Example
from benchmax.errors import BenchmaxError, UsageError
from benchmax.models.base import ModelClient, Sampling
from benchmax.models.endpoints import endpoint_model
from benchmax.rollouts.groups import run_groups
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings

Send = Callable[[Mapping[str, Any]], None]

LOCAL_TOKENS = 512
_PROCESS_DIED = "The environment's process"
"""How the error of a call begins whose process died: that is worth another try."""


class Rollouts:
    """Plays what is asked for in one environment."""

    def __init__(self, host: EnvHost, env: RemoteEnv) -> None:
        self._host = host
        self._env = env
        self._local: dict[str, ModelClient] = {}
        self._loading = asyncio.Lock()

    def about(self) -> dict[str, Any]:
        return {}

    async def answer(self, request: Mapping[str, Any], send: Send) -> None:
        """Play what is asked for; a failure outside a rollout is one last event."""
        play = {"rollout": self._rollout, "batch": self._batch}[str(request["do"])]
        try:
            await play(request, send)
        except BenchmaxError as error:
            send({"event": "error", "error": str(error)})

    async def aclose(self) -> None:
        for model in self._local.values():
            await model.aclose()

    async def _rollout(self, request: Mapping[str, Any], send: Send) -> None:
        (example,) = await self._examples(request)
        report = _reporter(send)
        async with self._model(request["llm"]) as (model, elsewhere):
            player = _player(request["llm"], model)
            send({"event": "rollout_started", "example_id": example["id"], **player})
            settings = _settings(request["options"], elsewhere)
            rollout = await run_rollout(self._host, example, model, settings, on_turn=report)
        report(rollout, ())
        if rollout.rewards:
            send({"event": "reward", "rewards": rollout.rewards})
        send(_completed(rollout) | player)

    async def _batch(self, request: Mapping[str, Any], send: Send) -> None:
        examples = await self._examples(request)
        options = request["options"]
        samples = int(options["samples"])
        total = len(examples) * samples
        async with self._model(request["llm"]) as (model, elsewhere):
            player, settings = _player(request["llm"], model), _settings(options, elsewhere)
            send({"event": "batch_started", "total": total, **player})
            at_once = samples * int(options["workers"])
            groups = run_groups(self._host, examples, model, settings, group_size=samples, concurrency=at_once)
            async with aclosing(groups):
                async for group in groups:
                    for rollout in group:
                        more = {"sample": rollout.sample, "messages": list(rollout.messages)}
                        send(_completed(rollout) | more | player)
        send({"event": "batch_completed", "total": total})

    async def _examples(self, request: Mapping[str, Any]) -> Sequence[Example]:
        if request.get("standardized"):
            return [_standard(row) for row in request["rows"]]
        return list(await self._env.preprocess(list(request["rows"])))

    @asynccontextmanager
    async def _model(self, llm: Mapping[str, Any]) -> AsyncIterator[tuple[ModelClient, bool]]:
        """The model that plays, and whether it is at an endpoint; a local one stays open for the next request."""
        if llm.get("base_url"):
            async with await endpoint_model(llm) as model:
                yield model, True
            return
        from benchmax.platform.runner.live.models import load_local

        name = str(llm["model"])
        async with self._loading:
            if name not in self._local:
                self._local[name] = await asyncio.to_thread(load_local, name)
        yield self._local[name], False


def _player(llm: Mapping[str, Any], model: ModelClient) -> dict[str, str]:
    """Which model plays, and a note if it stands in for another."""
    return {"model": model.name, **({"note": str(llm["note"])} if llm.get("note") else {})}


def _reporter(send: Send) -> Callable[[Rollout, Sequence[ChatMessage]], None]:
    """Sends every message once, the prompt's first."""
    sent = 0

    def send_new(rollout: Rollout, _: Sequence[ChatMessage]) -> None:
        nonlocal sent
        for message in rollout.messages[sent:]:
            send({"event": "message", "message": message})
        sent = len(rollout.messages)

    return send_new


def _settings(options: Mapping[str, Any], elsewhere: bool) -> RolloutSettings:
    """The budget of one rollout; a local model, often on a CPU, has fewer tokens."""
    most = int(options["max_completion_tokens"])
    return RolloutSettings(
        max_turns=options["max_turns"],
        max_tool_calls=options["max_tool_calls"],
        sampling=Sampling(max_tokens=most if elsewhere else min(most, LOCAL_TOKENS)),
    )


def _completed(rollout: Rollout) -> dict[str, Any]:
    died = rollout.error is not None and rollout.error.message.startswith(_PROCESS_DIED)
    event: dict[str, Any] = {
        "event": "worker_error" if died else "rollout_completed",
        "success": rollout.ok,
        "rewards": rollout.rewards,
        "error": None if rollout.ok else _problem(rollout),
        "example_id": rollout.example_id,
        "termination": rollout.termination.value,
    }
    if group := rollout.unscored.get("group_reward"):
        event["group_reward_error"] = group
    return event


def _problem(rollout: Rollout) -> str:
    if rollout.error is not None:
        return str(rollout.error)
    missing = "; ".join(f"{name}: {reason}" for name, reason in rollout.unscored.items())
    return missing or f"The rollout ended with {rollout.termination.value}."


def _standard(row: Any) -> Example:
    """An example as `dataset_preprocess` returns it."""
    if not isinstance(row, dict) or not isinstance(row.get("prompt_messages"), list) or not row["prompt_messages"]:
        raise UsageError("standardized_example has no prompt_messages. Send raw_example to have it preprocessed.")
    made = make_example(
        prompt_messages=row["prompt_messages"], task=row.get("task"), init_rollout_args=row.get("init_rollout_args")
    )
    made["id"] = str(row.get("id") or made["id"])
    return made
