"""Ready environments used by hand, with something forgotten: each says in one line what is missing."""

from __future__ import annotations

import pytest

from benchmax.envs.catalogue import BUILT_IN
from benchmax.envs.composed import compose
from benchmax.envs.loading import find_rows, load_env_class, make_env
from benchmax.errors import EnvError, NotFoundError, ToolError, UsageError

ANSWER = [{"role": "assistant", "content": "```python\nx\n```<answer>1</answer>"}]
CALLS = {
    "math": ("calculate", {"expression": "1"}),
    "excel": ("set_cell", {"cell": "A1", "value": 1}),
    "code": ("run_python", {"code": "1"}),
    "crm": ("search_knowledge_articles", {"search_term": "fans"}),
}
"""Of environments that keep something for each rollout."""


def ready(name):
    return make_env(load_env_class(name), {"tools": True} if name == "code" else {})


async def test_a_calculator_called_wrongly_says_how():
    env = ready("calculator")
    for tool, given in (("nosuch", {}), ("calculate", {}), ("calculate", {"expression": 5})):
        with pytest.raises(ToolError, match="takes an expression as text"):
            await env.run_tool("one", tool, **given)
    task = {"ground_truth": "5"}
    for messages in ("<answer>5</answer>", None):
        assert await env.compute_reward("one", messages, task) == {"called": 0.0, "correct": 0.0}


@pytest.mark.parametrize("name", [*CALLS, "composed"])
async def test_a_rollout_that_was_not_begun(name):
    env = compose("crm", "excel")() if name == "composed" else ready(name)
    tool, given = CALLS.get(name, CALLS["crm"])
    try:
        with pytest.raises(EnvError, match=r"rollout 'one' was not begun\. Call init_rollout first"):
            await env.run_tool("one", tool, **given)
    finally:
        await env.shutdown()


async def test_a_workbook_that_was_not_begun():
    env = ready("excel")
    try:
        with pytest.raises(EnvError, match="Call init_rollout first"):
            await env.compute_reward("one", ANSWER, {"expected": {}})
        with pytest.raises(EnvError, match="Call init_rollout first"):
            await env.copy_content_to_workspace("one", "text", "a.txt")
    finally:
        await env.shutdown()


@pytest.mark.parametrize("name", BUILT_IN)
async def test_a_task_without_what_is_needed(name):
    env = ready(name)
    try:
        await env.init_rollout("one")
        for task in ({}, None):
            with pytest.raises(UsageError, match=r"^A task needs the columns? [a-z_, ]+; [a-z_]+ is missing\. Pass"):
                await env.compute_reward("one", ANSWER, task)
        assert env.demonstrate({"prompt_messages": [], "task": None, "id": ""}) is None
        assert env.gold_completion({"prompt_messages": [], "task": None, "id": ""}) is None
    finally:
        await env.shutdown()


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_row_without_what_is_needed(name):
    with pytest.raises(UsageError, match=r"row (needs|does not name)") as found:
        load_env_class(name).dataset_preprocess({})
    assert str(found.value).endswith(".")


def test_a_level_that_is_misspelt_is_told_with_those_there_are():
    with pytest.raises(NotFoundError, match="it makes formulas, tables, conditions, reports, manipulation"):
        find_rows(load_env_class("excel"), "tabels")
