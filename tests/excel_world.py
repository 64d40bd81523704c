"""For tests of the Excel environment: examples, a model that plays demonstrations, workbooks of cells."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import openpyxl

from benchmax.envs.demonstration import turn_after
from benchmax.envs.excel.excel_env import ExcelEnvInProcess
from benchmax.envs.excel.levels import make_rows
from benchmax.envs.types import Example
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_rollout

HARDEST = "manipulation"
"""The level that lists all tools."""


def examples(level: str, rows: int, seed: int = 0) -> list[Example]:
    return [ExcelEnvInProcess.dataset_preprocess(row) for row in make_rows(level, rows=rows, seed=seed)]


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


def saved(book: openpyxl.Workbook) -> bytes:
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()
