"""Playing rollouts on the platform, before there is a run: one, a group, and the check of some examples."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from benchmax import config
from benchmax.envs.datasets.load import jsonl_line
from benchmax.errors import UsageError
from benchmax.net.origins import origin
from benchmax.platform.sdk.calls import EventStream, Row
from benchmax.platform.sdk.exceptions import (
    AuthenticationError,
    PlatformRolloutError,
    RolloutNotFound,
    RolloutServerError,
    RolloutStreamError,
    TrainerError,
)
from benchmax.platform.wire.rollout_requests import DEFAULT_MODEL
from benchmax.platform.wire.values import LAST_EVENTS, LAST_GROUP_EVENTS

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange


@dataclass(slots=True)
class ExampleValidation:
    """How one example went."""

    index: int
    ok: bool
    error: str | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class ValidationResult:
    """How all examples went; truthy when every part passed."""

    examples: list[ExampleValidation] = field(default_factory=list)
    group_reward: ExampleValidation | None = None

    @property
    def ok(self) -> bool:
        parts = list(filter(None, (*self.examples, self.group_reward)))
        return bool(parts) and all(part.ok for part in parts)

    def __bool__(self) -> bool:
        return self.ok


async def stream_rollout(
    exchange: Exchange,
    raw_example: Mapping[str, Any],
    env_cls_path: str | None = None,
    env_metadata_path: str | None = None,
    *,
    env_cls_bytes: bytes | None = None,
    env_metadata_bytes: bytes | None = None,
    example_index: int = 0,
    llm_base_url: str | None = None,
    llm_model: str = DEFAULT_MODEL,
    llm_api_key: str = "",
    llm_api_version: str = "",
    max_turns: int = 4,
    max_tool_calls: int = 8,
    max_completion_tokens: int = 4024,
    capture_messages: bool = False,
    full_messages: bool = False,
    include_event_meta: bool = True,
) -> Row:
    """Play one rollout; returns its last event, with `messages` when they were asked for."""
    body = {
        "standardized_example": None,
        "raw_example": json.loads(_json(raw_example)),
        "env": _env(env_cls_path, env_metadata_path, env_cls_bytes, env_metadata_bytes),
        "llm": await _llm(exchange, llm_base_url, llm_model, llm_api_key, llm_api_version),
        "options": {
            "max_turns": max_turns,
            "max_tool_calls": max_tool_calls,
            "max_completion_tokens": max_completion_tokens,
        },
    }
    events = await _collect(exchange, "/v1/rollout/stream", body, LAST_EVENTS)
    if not events or events[-1]["event"] not in LAST_EVENTS:
        raise RolloutStreamError("The stream ended before the rollout did. Try again.")
    rewards = [event["rewards"] for event in events if event["event"] == "reward"]
    result = {"rewards": rewards[-1] if rewards else {}} | events[-1] | {"example_index": example_index}
    if not include_event_meta:
        del result["event"]
    if capture_messages or full_messages:
        result["messages"] = [event["message"] for event in events if event["event"] == "message"]
    return result


async def run_group(
    exchange: Exchange,
    example: Mapping[str, Any],
    *,
    samples: int,
    env_cls_path: str | None = None,
    env_metadata_path: str | None = None,
    env_cls_bytes: bytes | None = None,
    env_metadata_bytes: bytes | None = None,
    llm_base_url: str | None = None,
    llm_model: str = DEFAULT_MODEL,
    llm_api_key: str = "",
    llm_api_version: str = "",
    max_turns: int = 4,
    max_tool_calls: int = 8,
) -> list[Row]:
    """Play one example several times, scored as a group; returns one event for each sample."""
    body = {
        "dataset_bytes": _base64(_json(example).encode()),
        "is_dataset_standardized": False,
        "concurrent_workers": 1,
        "env": _env(env_cls_path, env_metadata_path, env_cls_bytes, env_metadata_bytes),
        "llm": await _llm(exchange, llm_base_url, llm_model, llm_api_key, llm_api_version),
        "options": {"max_turns": max_turns, "max_tool_calls": max_tool_calls, "samples_per_example": samples},
    }
    events = await _collect(exchange, "/v1/rollout/batch/stream", body, LAST_GROUP_EVENTS)
    last = events[-1] if events else {"event": ""}
    if last["event"] in ("error", "cancelled"):
        raise PlatformRolloutError(f"The group was not played: {last.get('error') or last['event']}.")
    if last["event"] != "batch_completed":
        raise RolloutStreamError("The stream ended before the group did. Try again.")
    return [event for event in events if event["event"] in ("rollout_completed", "worker_error")]


async def validate_examples(
    exchange: Exchange,
    /,
    examples: Iterable[Mapping[str, Any]],
    env_cls_path: str | None = None,
    env_metadata_path: str | None = None,
    *,
    n: int = 2,
    env_class: Any = None,
    constructor_args: Mapping[str, Any] | None = None,
    pip_dependencies: Sequence[str] | None = None,
    local_modules: Sequence[Any] | None = None,
    check_group_reward: bool = True,
    group_reward_samples: int = 2,
    verbose: bool = True,
    full_messages: bool = False,
    **options: Any,
) -> ValidationResult:
    """Play the first `n` examples, and one as a group when the environment scores groups."""
    env: Row = {"env_cls_path": env_cls_path, "env_metadata_path": env_metadata_path}
    grouped = check_group_reward
    if env_class is not None:
        from benchmax.bundle import dump_bundle
        from benchmax.envs.base_env import overrides

        bundled: Row = {
            "constructor_args": constructor_args,
            "pip_dependencies": pip_dependencies,
            "local_modules": local_modules,
        }
        bundle = await exchange.in_thread(lambda: dump_bundle(env_class, **bundled))
        env = {"env_cls_bytes": bundle.pickled, "env_metadata_bytes": bundle.metadata.to_json_bytes()}
        grouped = check_group_reward and overrides(env_class, "compute_group_reward")
    chosen = list(islice(examples, max(0, n)))
    result = ValidationResult()
    for index, example in enumerate(chosen):
        part = await _validate_one(exchange, index, example, env | options, full_messages)
        result.examples.append(part)
        _print(verbose, part)
    if grouped and chosen:
        result.group_reward = await _validate_group(exchange, chosen[0], group_reward_samples, env | options)
        _print(verbose, result.group_reward)
    return result


async def _validate_one(
    exchange: Exchange, index: int, example: Mapping[str, Any], options: Row, full_messages: bool
) -> ExampleValidation:
    event: Row = {}
    for _ in range(2):  # a worker that died is worth one more try
        event = await stream_rollout(exchange, example, example_index=index, full_messages=full_messages, **options)
        if event["event"] != "worker_error":
            break
    ok = event["event"] == "rollout_completed" and bool(event.get("success"))
    error = None if ok else str(event.get("error") or event["event"])
    return ExampleValidation(index, ok, error, event.get("rewards") or {}, event.get("messages") or [])


async def _validate_group(
    exchange: Exchange, example: Mapping[str, Any], samples: int, options: Row
) -> ExampleValidation:
    events = await run_group(exchange, example, samples=samples, **options)
    errors = [
        str(event.get("group_reward_error") or event.get("error") or event["event"])
        for event in events
        if not event.get("success") or event.get("group_reward_error")
    ]
    good = len(events) == samples and not errors
    return ExampleValidation(0, good, None if good else (errors or ["some samples are missing"])[0])


async def _llm(exchange: Exchange, base_url: str | None, model: str, api_key: str, api_version: str) -> dict[str, str]:
    """The model to play; the platform's own key is never sent to another host."""
    known = await exchange.token()
    own = {origin(url) for url in (exchange.base_url, config.llm_url(), config.platform_url())}
    there = origin(base_url or "")
    if there.host and api_key and there not in own and api_key == known:
        raise UsageError(f"The platform's key is not sent to {there.host}. Give that host's own key.")
    return {"base_url": base_url or "", "api_key": api_key, "model": model, "api-version": api_version}


async def _collect(exchange: Exchange, path: str, body: Row, last: frozenset[str]) -> list[Row]:
    """The events of a stream, up to the first of a kind in `last`."""
    found = []
    stream = EventStream("POST", path, json=body, broken=RolloutStreamError, refused=_refused)
    async with aclosing(exchange.events(stream)) as events:
        async for event in events:
            found.append(event)
            if event["event"] in last:
                break
    return found


def _refused(status: int) -> type[TrainerError]:
    if status == 403:
        return AuthenticationError
    if status == 404:
        return RolloutNotFound
    return RolloutServerError if status >= 500 else PlatformRolloutError


def _env(cls_path: str | None, metadata_path: str | None, cls: bytes | None, metadata: bytes | None) -> dict[str, str]:
    by_path, by_bytes = bool(cls_path and metadata_path), cls is not None and metadata is not None
    if by_path == by_bytes or (by_path and (cls or metadata)) or (by_bytes and (cls_path or metadata_path)):
        raise UsageError("Give the environment either as env_cls_path and env_metadata_path, or as the two bytes.")
    if cls_path and metadata_path:
        return {"env_cls_path": cls_path, "env_metadata_path": metadata_path}
    return {"env_cls_bytes": _base64(cls or b""), "env_metadata_bytes": _base64(metadata or b"")}


def _json(example: Any) -> str:
    """An example as JSON; DatasetError for what JSON cannot hold."""
    return jsonl_line(dict(example) if isinstance(example, Mapping) else example)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _print(verbose: bool, part: ExampleValidation) -> None:
    if verbose:
        mark = "✓" if part.ok else "✗"
        print(f"{mark} example {part.index}: {part.rewards if part.ok else part.error}")  # noqa: T201
