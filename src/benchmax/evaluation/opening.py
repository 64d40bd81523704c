"""A model by what a person types.

scripted:gold                   answers with the environment's perfect answers
scripted:TEXT                   always answers TEXT
smollm2-135m, path/to/model     a local model
NAME with a base URL            a model on an OpenAI-compatible server
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ChatMessage, Example
from benchmax.errors import UsageError
from benchmax.models.base import ModelClient
from benchmax.models.scripted import ScriptedModel


def open_model(
    spec: str,
    *,
    env_class: type[BaseEnv],
    examples: Iterable[Example] = (),
    base_url: str | None = None,
    api_key_var: str | None = None,
) -> ModelClient:
    """The client for `spec`."""
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
    """A model that knows every answer the environment can tell."""
    answers = {_last_user(example["prompt_messages"]): env_class.gold_completion(example) for example in examples}

    def answer(messages: Sequence[ChatMessage]) -> str:
        return answers.get(_last_user(messages)) or ""

    return ScriptedModel(answer, name="scripted:gold")


def _last_user(messages: Sequence[ChatMessage]) -> str:
    return next((str(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), "")
