"""Environments as people write them pass a strict type checker."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.slow
def test_the_hooks_may_be_written_in_any_shape_and_the_reward_is_not_forgotten(tmp_path: Path) -> None:
    for name, text in (("written.py", WRITTEN), ("forgotten.py", FORGOTTEN)):
        (tmp_path / name).write_text(text)
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    said, trouble, _ = api.run([*options, str(tmp_path / "written.py"), str(tmp_path / "forgotten.py")])
    assert trouble == ""
    assert [line for line in said.splitlines() if "written.py" in line] == []
    assert 'abstract class "Forgotten"' in said
