"""The public surface, name by name: what is added or taken away is seen here first."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import benchmax

MOST_NAMES = 40

NAMES = {
    "BaseEnv", "BenchmaxError", "ChatMessage", "EnvHost", "Example", "HttpModel", "Judge", "ModelClient", "Rewards",
    "Rollout", "RolloutError", "RolloutSettings", "Rubric", "Sampling", "ScriptedModel", "Termination", "ToolCall",
    "ToolDefinition", "ToolResult", "Transcript", "Unscored", "UsageError", "__version__", "canonical_example_id",
    "check_dataset", "compare", "evaluate", "extract_completion_text", "load_examples", "make_example",
    "rank_group_rubrics", "read_rollouts", "replay", "run_batch", "run_group", "run_rollout", "score_rubrics",
    "split_rows", "tournament", "validate_env",
}  # fmt: skip
PRINTED_PATHS = [
    ("benchmax.envs.base_env", "BaseEnv"),
    ("benchmax.envs.types", "ChatMessage"),
    ("benchmax.envs.example_id", "make_example"),
    ("benchmax.envs.reward_helpers", "extract_completion_text"),
    ("benchmax.platform.validation", "validate_env"),
]


def test_exactly_these_names() -> None:
    assert set(benchmax.__all__) == NAMES
    assert len(benchmax.__all__) == len(NAMES) <= MOST_NAMES
    assert set(dir(benchmax)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_name_can_be_imported(name: str) -> None:
    assert getattr(benchmax, name) is not None


@pytest.mark.parametrize(("module", "name"), PRINTED_PATHS)
def test_flat_name_is_the_one_of_its_module(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is getattr(benchmax, name)


def test_editors_see_the_same_as_python() -> None:
    """The imports under TYPE_CHECKING name every lazy name, from the module it is taken from."""
    tree = ast.parse(Path(benchmax.__file__).read_text())
    [guarded] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == benchmax._HOME_OF
    assert set(seen) | {"__version__"} == NAMES


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        benchmax.no_such_name  # noqa: B018
