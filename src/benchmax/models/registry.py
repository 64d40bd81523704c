"""A model by what a person types.

scripted:gold                   answers with the environment's perfect answers
scripted:TEXT                   always answers TEXT
smollm2-135m, path/to/model     a local model
NAME with a base URL            a model on an OpenAI-compatible server
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.reward_values import describe_error
from benchmax.envs.types import ChatMessage, Example, ToolCall
from benchmax.errors import UsageError
from benchmax.models.base import ModelClient
from benchmax.models.scripted import ScriptedModel

MOST_UNKNOWN = 0.9
"""Share of examples without a gold answer above which `scripted:gold` measures nothing."""


def open_model(
    spec: str,
    *,
    env_class: type[BaseEnv],
    examples: Iterable[Example] = (),
    base_url: str | None = None,
    api_key_var: str | None = None,
) -> ModelClient:
    """The client for `spec`."""
    if api_key_var is not None and not os.environ.get(api_key_var):
        raise UsageError(f"The variable {api_key_var} is not set. Set it to the server's key, or name another.")
    if spec == "scripted:gold":
        return gold_model(env_class, examples)
    if spec.startswith("scripted:"):
        return ScriptedModel(spec.removeprefix("scripted:"), name=spec)
    if base_url is not None:
        from benchmax.models.http import HttpModel

        return HttpModel(spec, base_url, key_variable=api_key_var)
    try:
        from benchmax.inference.local import LocalModel
    except ImportError as missing:
        raise UsageError(
            f"The model {spec!r} runs here only with the package {missing.name!r}: pip install 'benchmax[train]'. "
            "Or give --base-url of an OpenAI-compatible server, or try --model scripted:gold."
        ) from None
    return LocalModel.load(spec)


def gold_model(env_class: type[BaseEnv], examples: Iterable[Example]) -> ScriptedModel:
    """A model that knows every answer the environment can tell; UsageError if it can tell next to none."""
    known = {_asked(example["prompt_messages"]): example for example in examples}
    silent = [example for example in known.values() if not _knows(env_class, example)]
    if len(silent) > MOST_UNKNOWN * len(known):
        raise UsageError(
            f"{env_class.__name__} knows no gold answer for {len(silent)} of {len(known)} examples, so scripted:gold "
            "would say nothing. Override gold_completion(cls, example) to return a good answer, or name another model."
        )

    def answer(messages: Sequence[ChatMessage]) -> ToolCall | str:
        last = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=0)
        example = known.get(_asked(messages[: last + 1]))
        if example is None:
            return ""
        calls = env_class.gold_tool_calls(example)
        made = sum(message.get("role") == "assistant" for message in messages[last + 1 :])
        return calls[made] if made < len(calls) else env_class.gold_completion(example) or ""

    return ScriptedModel(answer, name="scripted:gold")


def _knows(env_class: type[BaseEnv], example: Example) -> bool:
    try:
        return bool(env_class.gold_completion(example) or env_class.gold_tool_calls(example))
    except Exception as error:
        raise UsageError(
            f"{env_class.__name__}.gold_completion or gold_tool_calls failed: {describe_error(error)}. Correct it."
        ) from error


def _asked(messages: Sequence[ChatMessage]) -> str:
    """What tells one example's prompt from another's, with or without a system message before it."""
    return "\n".join(str(message.get("content")) for message in messages if message.get("role") != "system")
