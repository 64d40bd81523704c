"""Arguments of a wrong type, refused before anything is played."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping

from benchmax.errors import UsageError
from benchmax.models.base import ModelClient
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings


def check_players(host: object, model: object, settings: object) -> None:
    """Raise UsageError unless a rollout can be played with these."""
    if not isinstance(host, EnvHost):
        raise UsageError(f"host is {_kind(host)}. Give an open EnvHost: `async with EnvHost(MyEnv) as host:`.")
    if not host.is_open:
        raise UsageError("This EnvHost is not open. Play inside `async with EnvHost(MyEnv) as host:`.")
    if not isinstance(model, ModelClient):
        raise UsageError(f'model is {_kind(model)}. Give a ModelClient, such as HttpModel("name", "http://…/v1").')
    if not isinstance(settings, RolloutSettings):
        raise UsageError(f"settings is {_kind(settings)}. Give a RolloutSettings(…).")


def check_examples(examples: object) -> None:
    """Raise UsageError for what is no collection of examples."""
    if isinstance(examples, Mapping | str | bytes) or not isinstance(examples, Iterable | AsyncIterable):
        raise UsageError(f"examples is {_kind(examples)}. Give a list of examples, also for one: [example].")


def check_example(example: object) -> None:
    """Raise UsageError for what is no example, such as a row."""
    if not isinstance(example, Mapping) or "id" not in example or "prompt_messages" not in example:
        keys = f" with {', '.join(map(str, example))}" if isinstance(example, Mapping) else ""
        raise UsageError(
            f"One of the examples is {_kind(example)}{keys[:200]}; an example has an id and prompt_messages. "
            "Turn rows into examples with load_examples(rows, MyEnv).examples or MyEnv.dataset_preprocess(row)."
        )


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
