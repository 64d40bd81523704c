"""Environments as people write them, and scripts that use the clients, pass a strict type checker."""

from __future__ import annotations

import pytest
from mypy import api

WRITTEN = """
from typing import Any

from benchmax import BaseEnv, Example, ToolDefinition, Transcript, Unscored, extract_completion_text, make_example


class Named(BaseEnv):
    system_prompt = "Answer."
    reward_weights = {"a": 1.0}

    async def list_tools(self) -> list[ToolDefinition]:
        return []

    async def run_tool(self, rollout_id: str, tool_name: str, *, article: str) -> str:
        return article

    async def init_rollout(self, rollout_id: str, secret: str) -> None: ...

    async def compute_reward(
        self, rollout_id: str, messages: Transcript, task: dict[str, Any], **kwargs: Any
    ) -> dict[str, float]:
        return {"a": float(extract_completion_text(messages) == task["x"])}

    @classmethod
    def dataset_preprocess(cls, example: dict[str, Any]) -> Example:
        return make_example([{"role": "user", "content": example["q"]}], example)


class Plain(BaseEnv):
    def list_tools(self) -> list[ToolDefinition]:
        return []

    def run_tool(self, rollout_id: str, tool_name: str, a: int = 1) -> str:
        return str(a)

    def compute_reward(
        self, rollout_id: str, messages: Transcript, task: dict[str, Any]
    ) -> dict[str, float | Unscored]:
        return {"a": 1.0}

    async def compute_group_reward(
        self, rollout_ids: list[str], messages_list: list[Transcript], tasks: list[dict[str, Any]]
    ) -> list[dict[str, float]]:
        return []


Named(), Plain()
"""
FORGOTTEN = """
from benchmax import BaseEnv


class Forgotten(BaseEnv):
    pass


Forgotten()
"""
CLIENTS = """
from collections.abc import AsyncGenerator, Generator
from typing import Any, assert_type

from benchmax.platform.client import AsyncTrainerClient, TrainerClient


def blocking(trainer: TrainerClient) -> None:
    assert_type(trainer.get_run("r", include_config=True), dict[str, Any])
    assert_type(trainer.list_runs(), list[dict[str, Any]])
    assert_type(trainer.stream_run("r"), Generator[dict[str, Any], None, None])
    trainer.get_run(1)  # type: ignore[arg-type]


async def awaited(trainer: AsyncTrainerClient) -> None:
    assert_type(await trainer.get_run("r", include_config=True), dict[str, Any])
    assert_type(await trainer.list_runs(), list[dict[str, Any]])
    assert_type(trainer.stream_run("r"), AsyncGenerator[dict[str, Any], None])
    await trainer.get_run(1)  # type: ignore[arg-type]
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the type checker says of all of them, which it reads together: that takes a minute."""
    folder = tmp_path_factory.mktemp("types")
    for name, text in (("written.py", WRITTEN), ("forgotten.py", FORGOTTEN), ("clients.py", CLIENTS)):
        (folder / name).write_text(text)
    words, trouble, _ = api.run(["--strict", "--config-file=", f"--cache-dir={folder / 'cache'}", str(folder)])
    assert trouble == ""
    return words


@pytest.mark.slow
def test_the_hooks_may_be_written_in_any_shape_and_the_reward_is_not_forgotten(said: str) -> None:
    assert [line for line in said.splitlines() if "written.py" in line] == []
    assert 'abstract class "Forgotten"' in said


@pytest.mark.slow
def test_the_methods_of_both_clients_have_their_types(said: str) -> None:
    assert [line for line in said.splitlines() if "clients.py" in line] == []
