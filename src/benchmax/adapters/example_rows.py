"""Examples carried through a trainer's dataset, and found again when a row is to be played.

A trainer hands back what stood in its row, or only the prompt. So a row holds the whole example as one JSON text, and
the prompt's first message the example's id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from benchmax.envs.base_env import BaseEnv, with_system_prompt
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ChatMessage, Example
from benchmax.errors import DatasetError

COLUMN = "benchmax_example"
"""The column that holds the example as JSON."""
ID_KEY = "benchmax_id"
"""The key of a prompt's first message that holds the example's id."""


def carry(example: Example) -> dict[str, str]:
    """The columns that a trainer's row needs to find its example again."""
    return {COLUMN: json.dumps(example, ensure_ascii=False)}


def carried(row: Mapping[str, Any], prompt: Iterable[Mapping[str, Any]]) -> Example:
    """The example of a row; one that no adapter prepared is its prompt, with the other columns as the task."""
    text = row.get(COLUMN)
    if text is None:
        messages = [cast(ChatMessage, dict(message)) for message in prompt]
        return make_example(prompt_messages=messages, task=dict(row))
    try:
        example: Example = json.loads(text)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"The column {COLUMN} of a row is not JSON. Prepare the dataset again.") from error
    return example


def prompt_of(example: Example, env: BaseEnv | type[BaseEnv]) -> list[dict[str, Any]]:
    """The prompt as a trainer's dataset shows it, with the environment's system prompt and the example's id."""
    messages = with_system_prompt(example["prompt_messages"], env.system_prompt)
    return [{**message, **({} if index else {ID_KEY: example["id"]})} for index, message in enumerate(messages)]


class ExampleIndex:
    """Examples by their id, or by their prompt where a dataset was made without our help."""

    def __init__(self, examples: Iterable[Example], env: BaseEnv | type[BaseEnv]) -> None:
        self._env = env
        self._by_id: dict[str, Example] = {}
        self._by_prompt: dict[str, list[Example]] = {}
        self.add(examples)

    def add(self, examples: Iterable[Example]) -> None:
        for example in examples:
            if example["id"] in self._by_id:
                continue
            self._by_id[example["id"]] = example
            bare = example["prompt_messages"]
            for key in {_key(bare), _key(with_system_prompt(bare, self._env.system_prompt))}:
                self._by_prompt.setdefault(key, []).append(example)

    def find(self, prompt: Any) -> Example:
        """The example that a prompt of the trainer's belongs to."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        named = messages[0].get(ID_KEY) if messages else None
        if named in self._by_id:
            return self._by_id[named]
        found = self._by_prompt.get(_key(messages), [])
        if len(found) == 1:
            return found[0]
        problem = "no example has it" if not found else f"{len(found)} examples have it"
        raise DatasetError(
            f"The trainer asks for the prompt {_key(messages)[:200]}, and {problem}. "
            "Make its dataset with the adapter's `dataset()`, which names the example in each prompt."
        )


def _key(messages: Iterable[Mapping[str, Any]]) -> str:
    plain = [{key: each[key] for key in ("role", "content") if key in each} for each in messages]
    return json.dumps(plain, ensure_ascii=False, sort_keys=True)
