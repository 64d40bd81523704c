"""What `--model x` means; no other module decides it.

scripted:gold                   answers with the environment's perfect answers
scripted:TEXT                   always answers TEXT
NAME:REST                       a kind of model that an installed package adds (`benchmax.plugins`)
NAME with a base URL            a model on an OpenAI-compatible server
RUN, RUN:CHECKPOINT             the model a training run made
smollm2-135m, path/to/model     a local model; MODEL:FOLDER with a trained adapter or checkpoint

The rooms that run models are above this one, so they are imported by name when they are needed.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from benchmax import extras, plugins
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ChatMessage, Example, ToolCall
from benchmax.errors import NotFoundError, UsageError, describe_cause
from benchmax.models.base import ModelClient
from benchmax.models.scripted import ScriptedModel

Say = Callable[[str], None]
"""Receives a message about what takes a while."""
MOST_UNKNOWN = 0.9
"""Share of examples without a gold answer above which `scripted:gold` measures nothing."""
_SCRIPTED = "scripted:"
GOLD = f"{_SCRIPTED}gold"
plugins.reserve("models", {_SCRIPTED.rstrip(":")})


def open_model(
    spec: str,
    *,
    env_class: type[BaseEnv],
    examples: Iterable[Example] = (),
    base_url: str | None = None,
    api_key_var: str | None = None,
    say: Say = lambda what: None,
) -> ModelClient:
    """The client for `spec`."""
    if api_key_var is not None and not os.environ.get(api_key_var):
        raise UsageError(f"The variable {api_key_var} is not set. Set it to the server's key, or name another.")
    if spec == GOLD:
        return gold_model(env_class, examples)
    if is_scripted(spec):
        return ScriptedModel(spec.removeprefix(_SCRIPTED), name=spec)
    if (scheme := _plugin_scheme(spec)) is not None:
        return _added(scheme, spec.removeprefix(f"{scheme}:"))
    if base_url is not None:
        from benchmax.models.http import HttpModel

        return HttpModel(spec, base_url, key_variable=api_key_var)
    try:
        return open_local(spec, say)
    except NotFoundError as error:
        raise NotFoundError(f"{error} A model of a server needs --base-url, the server's address.") from None


def _added(scheme: str, rest: str) -> ModelClient:
    """The model that a package opens for what follows its scheme."""
    model = plugins.call("models", scheme, rest)
    if inspect.isclass(model) or not callable(getattr(model, "converse", None)):
        raise plugins.wrong("models", scheme, model, "a ModelClient")
    client: ModelClient = model
    return client


def check_model(spec: str, base_url: str | None = None, *, say: Say = lambda what: None) -> None:
    """Raise an error for a model that cannot be found; download one that can be."""
    if _is_local(spec, base_url):
        opening = import_module("benchmax.trainer.open_checkpoint")
        name, _ = opening.split_checkpoint(spec)
        with _needing_packages(spec):
            if opening.find_run(name) is None:
                import_module("benchmax.inference.weights.store").resolve(name, say=say)


def located_model(spec: str, base_url: str | None = None) -> str:
    """The same model with absolute paths, so that it means the same later and from any folder."""
    if not _is_local(spec, base_url):
        return spec
    opening = import_module("benchmax.trainer.open_checkpoint")
    name, folder = opening.split_checkpoint(spec)
    if opening.find_run(name) is not None:
        pinned: str = opening.pin_checkpoint(spec)
        return pinned
    if not import_module("benchmax.inference.weights.store").is_name(name):
        name = _absolute(name)
    return f"{name}:{_absolute(folder)}" if folder else name


def _absolute(path: str) -> str:
    return os.path.abspath(path) if os.path.exists(path) else path


def _is_local(spec: str, base_url: str | None) -> bool:
    return base_url is None and not is_scripted(spec) and _plugin_scheme(spec) is None


def is_scripted(spec: str) -> bool:
    """Whether the answers are given, and no model writes them."""
    return spec.startswith(_SCRIPTED)


def _plugin_scheme(spec: str) -> str | None:
    """The plug-in's scheme that `spec` begins with, if any."""
    scheme, colon, _ = spec.partition(":")
    return scheme if colon and scheme in plugins.entries("models") else None


def open_local(spec: str, say: Say = lambda what: None, **options: Any) -> ModelClient:
    """A model of this machine: a training run's, or one by name, path or hub id, fetched when it is not here.

    `options` are those of `inference.local_model.LocalModel.load`.
    """
    opening = import_module("benchmax.trainer.open_checkpoint")
    name, checkpoint = opening.split_checkpoint(spec)
    model: ModelClient
    with _needing_packages(spec):
        if (run := opening.find_run(name)) is not None:
            model = opening.open_checkpoint(run, checkpoint or "best", say=say, **options)
        else:
            import_module("benchmax.inference.weights.store").resolve(name, say=say)
            model = import_module("benchmax.inference.local_model").LocalModel.load(
                name, checkpoint=checkpoint, **options
            )
    return model


@contextmanager
def _needing_packages(spec: str) -> Iterator[None]:
    try:
        yield
    except ImportError as missing:
        raise UsageError(
            f"The model {spec!r} runs here only with the package {missing.name!r}: {extras.install('train')}. "
            "Or give --base-url of an OpenAI-compatible server, or try --model scripted:gold."
        ) from None


def gold_model(env_class: type[BaseEnv], examples: Iterable[Example]) -> ScriptedModel:
    """A model that answers with the environment's gold answers; raises UsageError if there are hardly any."""
    known = {_prompt_key(example["prompt_messages"]): example for example in examples}
    silent = [example for example in known.values() if not _knows(env_class, example)]
    if len(silent) > MOST_UNKNOWN * len(known):
        raise UsageError(
            f"{env_class.__name__} has no gold answer for {len(silent)} of {len(known)} examples, so scripted:gold, "
            "the model when no --model is given, would say nothing. Override gold_completion(cls, example) to return a "
            "good answer, or name another model."
        )

    def answer(messages: Sequence[ChatMessage]) -> ToolCall | str:
        ends = range(len(messages), 0, -1)  # the longest first: one example's prompt may begin like another's
        begun = next((end for end in ends if _prompt_key(messages[:end]) in known), None)
        if begun is None:
            return ""
        example = known[_prompt_key(messages[:begun])]
        calls = env_class.gold_tool_calls(example)
        made = sum(message.get("role") == "assistant" for message in messages[begun:])
        return calls[made] if made < len(calls) else env_class.gold_completion(example) or ""

    return ScriptedModel(answer, name=GOLD)


def _knows(env_class: type[BaseEnv], example: Example) -> bool:
    try:
        return bool(env_class.gold_completion(example) or env_class.gold_tool_calls(example))
    except Exception as error:
        raise UsageError(
            f"{env_class.__name__}.gold_completion or gold_tool_calls failed: {describe_cause(error)}. Correct it."
        ) from error


def _prompt_key(messages: Sequence[ChatMessage]) -> str:
    """Identifies an example's prompt, with or without a system message before it."""
    return "\n".join(str(message.get("content")) for message in messages if message.get("role") != "system")
