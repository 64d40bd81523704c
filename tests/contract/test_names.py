"""Names, signatures and defaults that code written for the published SDK relies on."""

from __future__ import annotations

import importlib
import inspect

import pytest

from documents_env import MyEnv

NAMES = {
    "benchmax.envs.base_env": ["BaseEnv"],
    "benchmax.envs.types": [
        "ChatMessage", "Example", "Messages", "ToolCall", "ToolCallDict", "ToolDefinition", "StandardizedExample",
    ],
    "benchmax.envs.example_id": ["canonical_example_id", "make_example"],
    "benchmax.envs.reward_helpers": [
        "citation_score", "clip01", "count_search_calls", "extract_answer_block", "extract_completion_text",
        "overlap_reward", "percent_of_text_a_in_text_b", "search_within_budget", "tool_call_efficiency",
    ],
    "benchmax.envs.logging": ["group_context", "rollout_context"],
    "benchmax.prompts.tools": ["mcp2openai", "parse_hermes_tool_call", "render_tools_prompt"],
    "benchmax.rubrics": [
        "Rubric", "evaluate_rubric_ranking", "evaluate_single_rubric", "generate_instance_wise_adaptive_rubrics",
        "group_rubric_based_reward_function", "group_rubric_ranked_reward_function",
        "single_rubric_based_reward_function",
    ],
    "benchmax.rewards.diversity": ["DiversityConfig", "cluster_texts", "scale_by_diversity"],
    "benchmax.platform.validation": [
        "ValidationReport", "assert_group_reward_contract", "overrides_compute_group_reward",
        "overrides_validate_probe", "run_validate_probe", "validate_env",
    ],
    "benchmax.config": ["auth_url", "base_domain", "llm_url", "platform_url", "resolve_judge_key", "web_app_url"],
}  # fmt: skip


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_where_the_documents_say(module):
    loaded = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(loaded, name)] == []


HOOKS = {
    "dataset_preprocess": ["example", "**kwargs"],
    "playground_preprocess": ["prompt", "messages", "**kwargs"],
    "load_dataset": ["dataset_name", "**kwargs"],
    "list_tools": ["self"],
    "run_tool": ["self", "rollout_id", "tool_name", "**tool_args"],
    "compute_reward": ["self", "rollout_id", "messages", "task", "**kwargs"],
    "compute_group_reward": ["self", "rollout_ids", "messages_list", "tasks", "**kwargs"],
    "validate_probe": ["self", "eval_dataset"],
    "estimate_rollout_tokens": ["self"],
    "get_system_prompt": ["self", "add_tool_defs"],
    "shutdown": ["self"],
    "init_rollout": ["self", "rollout_id", "**rollout_args"],
    "release_rollout": ["self", "rollout_id"],
    "copy_to_workspace": ["self", "rollout_id", "src_path", "dst_filename"],
    "copy_content_to_workspace": ["self", "rollout_id", "src_content", "dst_filename"],
    "copy_from_workspace": ["self", "rollout_id", "src_filename", "dst_path"],
}


def parameters(function) -> list[str]:
    marks = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    return [marks.get(p.kind, "") + p.name for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("hook", HOOKS)
def test_base_env_has_the_published_hooks(hook):
    from benchmax.envs.base_env import BaseEnv

    assert parameters(getattr(BaseEnv, hook)) == HOOKS[hook]


def test_validate_env_keeps_its_signature():
    from benchmax.platform.validation import validate_env

    assert parameters(validate_env) == [
        "env_class", "env_args", "train_dataset", "eval_dataset", "local_modules", "pip_dependencies", "local",
        "api_key", "base_url", "llm_base_url", "llm_api_key", "remote_examples", "group_reward_samples", "llm_model",
        "max_turns", "max_tool_calls", "verbose", "full_messages",
    ]  # fmt: skip


ROWS = [{"prompt": f"what is {i}+{i}?", "ground_truth": str(2 * i)} for i in range(20)]


async def test_the_documents_environment_runs():
    from benchmax.models.scripted import ScriptedModel
    from benchmax.rollouts import EnvHost, run_batch

    env = MyEnv
    examples = [env.dataset_preprocess(row) for row in ROWS]
    async with EnvHost(env) as host:
        rollouts = await run_batch(host, examples, ScriptedModel("it is <answer>4</answer>"))
    assert sum(r.reward for r in rollouts) == 1.0
    assert all(r.messages[0] == {"role": "system", "content": env.system_prompt} for r in rollouts)


def test_the_documents_environment_validates(capsys):
    from benchmax.platform.validation import validate_env

    report = validate_env(MyEnv, {}, ROWS)
    assert report, capsys.readouterr().out
    assert "validate_env passed: local" in capsys.readouterr().out


async def test_multi_turn_rows_score_the_new_answer_not_the_old_one():
    """The published helper joined assistant turns of the prompt too, so an old answer was scored."""
    from benchmax.models.scripted import ScriptedModel
    from benchmax.rollouts import EnvHost, run_batch

    env = MyEnv
    row = {
        "messages": [
            {"role": "user", "content": "what is 1+1?"},
            {"role": "assistant", "content": "<answer>2</answer>"},
            {"role": "user", "content": "and 2+2?"},
        ],
        "ground_truth": "4",
    }
    async with EnvHost(env) as host:
        (rollout,) = await run_batch(host, [env.dataset_preprocess(row)], ScriptedModel("<answer>4</answer>"))
    assert rollout.reward == 1.0


def test_preprocess_names_the_class_and_the_columns():
    with pytest.raises(ValueError, match=r"MyEnv\.dataset_preprocess needs one of the columns .*this row has question"):
        MyEnv.dataset_preprocess({"question": "?"})


def test_preprocess_does_not_change_the_row():
    row = {"prompt": "q", "ground_truth": "a", "init_rollout_args": {"x": 1}}
    example = MyEnv.dataset_preprocess(row)
    assert row == {"prompt": "q", "ground_truth": "a", "init_rollout_args": {"x": 1}}
    assert example["task"] == row
    assert example["init_rollout_args"] == {"x": 1}


def test_playground_prepends_the_system_prompt_and_has_no_task():
    env = MyEnv
    example = env.playground_preprocess(prompt="hi")
    assert [m["role"] for m in example["prompt_messages"]] == ["system", "user"]
    assert example.get("task") is None
    with pytest.raises(ValueError, match="prompt or messages"):
        env.playground_preprocess()
    with pytest.raises(ValueError, match="not both"):
        env.playground_preprocess(prompt="a", messages=[{"role": "user", "content": "b"}])


async def test_workspaces_are_refused_with_words_by_default(tmp_path):
    env = MyEnv()
    with pytest.raises(NotImplementedError, match="override copy_to_workspace"):
        await env.copy_to_workspace("r", tmp_path)


async def test_tools_can_be_put_into_the_system_prompt():
    from benchmax.envs.types import ToolDefinition

    class Tooled(MyEnv):
        async def list_tools(self):
            return [ToolDefinition("look", "Looks.")]

    env = Tooled()
    assert await env.get_system_prompt() == env.system_prompt
    text = await env.get_system_prompt(add_tool_defs=True)
    assert text.startswith(env.system_prompt)
    assert '"look"' in text
    assert "<tools>" in text
