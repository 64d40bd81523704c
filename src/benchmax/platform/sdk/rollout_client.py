"""Rollouts on the platform, streamed as they happen: what the run would see, before there is a run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmax import config
from benchmax.errors import UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.exceptions import (
    AuthenticationError,
    PlatformRolloutError,
    RolloutNotFound,
    RolloutServerError,
    RolloutStreamError,
    TrainerError,
)
from benchmax.platform.sdk.transport import AsyncTwin, Connection, failure
from benchmax.platform.wire.rollout_requests import DEFAULT_MODEL

_LAST = frozenset({"rollout_completed", "worker_error", "error", "cancelled"})


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
    """How all of them went; true when every part did."""

    examples: list[ExampleValidation] = field(default_factory=list)
    group_reward: ExampleValidation | None = None

    @property
    def ok(self) -> bool:
        parts = [*self.examples, *([self.group_reward] if self.group_reward else [])]
        return bool(parts) and all(part.ok for part in parts)

    def __bool__(self) -> bool:
        return self.ok


class RolloutClient(Connection):
    """Plays single rollouts and groups on the platform."""

    def __init__(
        self,
        api_key: str | None = None,
        server_url: str | None = None,
        timeout: float = 300.0,
        *,
        token_provider: TokenProvider | None = None,
    ) -> None:
        url = server_url or config.setting("ROLLOUT_URL") or credentials.base_url()
        super().__init__(api_key, url, timeout, token_provider)

    def stream_rollout(
        self,
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
    ) -> dict[str, Any]:
        """Play one rollout; gives its last event, with `messages` when they were asked for."""
        body = {
            "standardized_example": None,
            "raw_example": dict(raw_example),
            "env": _env(env_cls_path, env_metadata_path, env_cls_bytes, env_metadata_bytes),
            "llm": self._llm(llm_base_url, llm_model, llm_api_key, llm_api_version),
            "options": {
                "max_turns": max_turns,
                "max_tool_calls": max_tool_calls,
                "max_completion_tokens": max_completion_tokens,
            },
        }
        messages: list[dict[str, Any]] = []
        rewards: dict[str, float] = {}
        for event in self._events("/v1/rollout/stream", body):
            if event["event"] == "message":
                messages.append(event["message"])
            elif event["event"] == "reward":
                rewards = event["rewards"]
            elif event["event"] in _LAST:
                result = dict(event) if include_event_meta else {key: event[key] for key in event if key != "event"}
                result.setdefault("rewards", rewards)
                result["example_index"] = example_index
                return result | ({"messages": messages} if capture_messages or full_messages else {})
        raise RolloutStreamError("The stream ended before the rollout did. Try again.")

    def run_group(
        self,
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
    ) -> list[dict[str, Any]]:
        """Play one example several times, scored as a group; gives one event for each sample."""
        body = {
            "dataset_bytes": _base64(json.dumps(dict(example)).encode()),
            "is_dataset_standardized": False,
            "concurrent_workers": 1,
            "env": _env(env_cls_path, env_metadata_path, env_cls_bytes, env_metadata_bytes),
            "llm": self._llm(llm_base_url, llm_model, llm_api_key, llm_api_version),
            "options": {"max_turns": max_turns, "max_tool_calls": max_tool_calls, "samples_per_example": samples},
        }
        found: list[dict[str, Any]] = []
        for event in self._events("/v1/rollout/batch/stream", body):
            if event["event"] == "batch_completed":
                return found
            if event["event"] in ("rollout_completed", "worker_error"):
                found.append(event)
            elif event["event"] in ("error", "cancelled"):
                raise PlatformRolloutError(f"The group was not played: {event.get('error') or event['event']}.")
        raise RolloutStreamError("The stream ended before the group did. Try again.")

    def validate_examples(
        self,
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
        env: dict[str, Any] = {"env_cls_path": env_cls_path, "env_metadata_path": env_metadata_path}
        grouped = check_group_reward
        if env_class is not None:
            from benchmax.bundle import dump_bundle
            from benchmax.envs.base_env import overrides

            bundle = dump_bundle(
                env_class,
                constructor_args=constructor_args,
                pip_dependencies=pip_dependencies,
                local_modules=local_modules,
            )
            env = {"env_cls_bytes": bundle.pickled, "env_metadata_bytes": bundle.metadata.to_json_bytes()}
            grouped = check_group_reward and overrides(env_class, "compute_group_reward")
        chosen = [example for _, example in zip(range(n), examples, strict=False)]
        result = ValidationResult()
        for index, example in enumerate(chosen):
            result.examples.append(self._validate_one(index, example, env | options, full_messages))
            _say(verbose, result.examples[-1])
        if grouped and chosen:
            result.group_reward = self._validate_group(chosen[0], group_reward_samples, env | options)
            _say(verbose, result.group_reward)
        return result

    def _validate_one(
        self, index: int, example: Mapping[str, Any], options: dict[str, Any], full_messages: bool
    ) -> ExampleValidation:
        event: dict[str, Any] = {}
        for _ in range(2):  # a worker that died is worth one more try
            event = self.stream_rollout(example, example_index=index, full_messages=full_messages, **options)
            if event["event"] != "worker_error":
                break
        ok = event["event"] == "rollout_completed" and bool(event.get("success"))
        error = None if ok else str(event.get("error") or event["event"])
        return ExampleValidation(index, ok, error, event.get("rewards") or {}, event.get("messages") or [])

    def _validate_group(self, example: Mapping[str, Any], samples: int, options: dict[str, Any]) -> ExampleValidation:
        events = self.run_group(example, samples=samples, **options)
        errors = [
            str(event.get("group_reward_error") or event.get("error") or event["event"])
            for event in events
            if not event.get("success") or event.get("group_reward_error")
        ]
        good = len(events) == samples and not errors
        return ExampleValidation(0, good, None if good else (errors or ["some samples are missing"])[0])

    def _llm(self, base_url: str | None, model: str, api_key: str, api_version: str) -> dict[str, str]:
        """The model to play; the platform's own key never goes to another host."""
        ours = {
            urlsplit(self.base_url).netloc,
            urlsplit(config.llm_url()).netloc,
            urlsplit(config.platform_url()).netloc,
        }
        if base_url and api_key and urlsplit(base_url).netloc not in ours and api_key == self._known_token():
            raise UsageError(
                f"The platform's key is not sent to {urlsplit(base_url).netloc}. Give that host's own key."
            )
        return {"base_url": base_url or "", "api_key": api_key, "model": model, "api-version": api_version}

    def _known_token(self) -> str | None:
        try:
            return self._token()
        except AuthenticationError:
            return None

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The JSON of each `data: ` line."""
        import httpx2

        headers = {"Authorization": f"Bearer {self._token()}"}
        try:
            with self._http.stream("POST", f"{self.base_url}{path}", json=body, headers=headers) as answer:
                if not answer.is_success:
                    answer.read()
                    raise failure(answer, _kind)
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line[6:])
        except httpx2.ConnectError as error:
            raise RolloutStreamError(
                f"Cannot reach {self.base_url}: {error}. Check that the platform runs (`benchmax up` starts one here)."
            ) from error
        except (httpx2.TransportError, ValueError) as error:
            raise RolloutStreamError(f"The stream broke off: {error or type(error).__name__}. Try again.") from error


class AsyncRolloutClient(AsyncTwin):
    _kind = RolloutClient


def _kind(status: int) -> type[TrainerError]:
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


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _say(verbose: bool, part: ExampleValidation) -> None:
    if verbose:
        mark = "✓" if part.ok else "✗"
        print(f"{mark} example {part.index}: {part.rewards if part.ok else part.error}")  # noqa: T201
