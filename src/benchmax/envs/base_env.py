"""What an environment is: a system prompt, tools, and a reward, as one Python class.

    class Capitals(BaseEnv):
        system_prompt = "Answer with the city alone."

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"correct": float(extract_completion_text(messages) == task["ground_truth"])}

Each example is played like this, every rollout with an id of its own:

    dataset_preprocess(row) → init_rollout → { model turn → run_tool … } → compute_reward
                            → compute_group_reward (once all siblings are done) → release_rollout

One instance serves thousands of rollouts at once. Keep what belongs to a rollout under its id, and
use `await` for anything slow; a hook that blocks is moved to a thread of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict

from benchmax import extras
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ChatMessage, Example, Messages, RewardValue, ToolCall, ToolDefinition
from benchmax.errors import ToolError
from benchmax.prompts.tools import render_tools_prompt
from benchmax.published import OlderEnvMethods

PROMPT_COLUMNS = ("prompt_messages", "messages", "prompt")


def _hook(function: Callable[..., Any]) -> Callable[..., Any]:
    """Type checkers let a hook be written in any shape: plain or async, with named arguments for `**kwargs`."""
    return function


class PartFacts(TypedDict):
    """What rollouts need to know about one of the environments that another is composed of."""

    system_prompt: str
    max_turns: int | None
    max_tool_calls: int | None
    primary: str | None
    """Its PRIMARY_REWARD_KEY, as the composed environment names that component."""


class BaseEnv(OlderEnvMethods, ABC):
    """An environment. Override `compute_reward`; add `list_tools` and `run_tool` to give the model tools."""

    system_prompt: str = ""
    """Sent before every prompt that has no system message of its own: in training, evaluation and playground."""
    recommended_max_turns: int | None = None
    recommended_max_tool_calls: int | None = None
    reward_weights: ClassVar[Mapping[str, float]] = {}
    """How much each reward component counts in the total; 1 when not named."""
    PRIMARY_REWARD_KEY: str | None = None
    """The component that says whether the task was solved; the total when not set."""
    PIP_DEPENDENCIES: ClassVar[Sequence[str]] = ()
    NETWORK: ClassVar[Literal["none", "host"]] = "host"
    composed_of: Mapping[str, PartFacts] = {}
    """The environments it is composed of, by name (`benchmax.envs.composed`); none in any other environment."""

    def __init__(self, **kwargs: Any) -> None:
        """Accept and ignore further arguments."""

    # Datasets

    @classmethod
    @_hook
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        """Turn a row into an example. Override it when your columns are not `prompt` or `messages`."""
        row = dict(example)
        for column in PROMPT_COLUMNS:
            if row.get(column) is not None:
                return make_example(
                    prompt_messages=as_messages(row[column]),
                    task=row,
                    init_rollout_args=row.get("init_rollout_args"),
                )
        raise ValueError(
            f"{cls.__name__}.dataset_preprocess needs one of the columns {', '.join(PROMPT_COLUMNS)}; "
            f"this row has {', '.join(map(str, row)) or 'none'}. Rename a column, or override dataset_preprocess."
        )

    @classmethod
    def playground_preprocess(
        cls, prompt: str | None = None, messages: Messages | None = None, **kwargs: Any
    ) -> Example:
        """Turn what a person typed into an example without a task, so that no reward is computed."""
        if prompt is not None and messages is not None:
            raise ValueError("playground_preprocess takes either prompt or messages, not both. Leave one out.")
        if prompt is None and not messages:
            raise ValueError("playground_preprocess needs a prompt or messages. Pass one of them.")
        turns = as_messages(prompt if messages is None else messages)
        return make_example(prompt_messages=with_system_prompt(turns, cls.system_prompt), task=None)

    @classmethod
    def load_dataset(cls, dataset_name: str, **kwargs: Any) -> tuple[Any, str | None]:
        """Load rows by name with Hugging Face `datasets`; returns the rows and, if there is one, their folder."""
        try:
            import datasets  # noqa: F401
        except ImportError as missing:
            advice = f"load_dataset needs the `datasets` package: {extras.install('data')}"
            raise ImportError(advice, name=missing.name) from missing
        from benchmax.envs.datasets.hub import load_hub_dataset

        return load_hub_dataset(dataset_name, **kwargs), None

    # Tools

    @_hook
    async def list_tools(self) -> list[ToolDefinition]:
        """The tools the model may call."""
        return []

    @_hook
    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        """Run one tool call and return text for the model. An exception becomes an error message for it."""
        raise ToolError(f"{type(self).__name__} lists no tool named {tool_name!r}; implement run_tool to serve it.")

    @_hook
    async def list_part_tools(self, part: str) -> list[ToolDefinition]:
        """The tools that rollouts of one part of a composed environment see."""
        return list(await self.list_tools())

    # Rewards

    @abstractmethod
    @_hook
    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        """Score a finished rollout: named components, each a finite number or `Unscored(reason)`.

        `messages` is the whole conversation (a `Transcript`: `.prompt` and `.completion` tell the two parts
        apart), `task` the example's task, and `kwargs` its `init_rollout_args`.
        """

    @_hook
    async def compute_group_reward(
        self,
        rollout_ids: list[str],
        messages_list: list[Messages],
        tasks: list[dict[str, Any] | None],
        **kwargs: Any,
    ) -> Sequence[Mapping[str, RewardValue]]:
        """Score siblings against one another: one dict of further components per rollout, in order."""
        return [{} for _ in rollout_ids]

    # Checks before a run

    @_hook
    async def validate_probe(self, eval_dataset: Sequence[Any]) -> dict[str, Any] | None:
        """A check of your own, run before training: `{"ok": bool, "summary": str, …}`. It never fails a run."""
        return None

    def estimate_rollout_tokens(self) -> int | None:
        """The most tokens one rollout may need, to warn before a launch that would cut it."""
        return None

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        """A perfect answer, for checks; by default the `ground_truth`, in `<answer>` tags if they are asked for."""
        task = example.get("task") or {}
        truth = task.get("ground_truth", task.get("answer"))
        if not isinstance(truth, str | int | float) or isinstance(truth, bool):
            return None
        prompts = (cls.system_prompt, *(message.get("content") for message in example["prompt_messages"]))
        asked = "".join(str(each or "") for each in prompts).lower()
        return f"<answer>{truth}</answer>" if "answer>" in asked or "<answer" in asked else str(truth)

    @classmethod
    def gold_tool_calls(cls, example: Example) -> Sequence[ToolCall]:
        """The tool calls a perfect model makes, one a turn, before its `gold_completion`; for checks."""
        return ()

    @_hook
    def demonstrate(self, example: Example) -> Any:
        """A scripted solution, played through the real tools: yield calls, get their results, then yield the answer.

            code = yield "look_up", {"name": example["task"]["name"]}
            yield f"<answer>{code}</answer>"

        It is shown to a model that finds no solution by itself. A list of turns works as well; None means no solution.
        """
        return None

    # Prompts

    async def get_system_prompt(self, add_tool_defs: bool = False) -> str:
        """The system prompt, with the tools described in it when asked for."""
        if not add_tool_defs:
            return self.system_prompt
        return render_tools_prompt(await self.list_tools(), self.system_prompt)

    # Lifecycle

    @_hook
    async def shutdown(self) -> None:
        """Free everything; called once."""

    @_hook
    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        """Prepare a rollout; `rollout_args` are the example's `init_rollout_args`."""

    @_hook
    async def release_rollout(self, rollout_id: str) -> None:
        """Free a rollout. Always called after init_rollout, also when that failed or was cancelled."""

    # Workspaces

    async def copy_to_workspace(self, rollout_id: str, src_path: Path, dst_filename: str | None = None) -> None:
        """Put a file into the rollout's private directory."""
        raise _no_workspaces(self, "copy_to_workspace")

    async def copy_content_to_workspace(self, rollout_id: str, src_content: str | bytes, dst_filename: str) -> None:
        """Write a file in the rollout's private directory."""
        raise _no_workspaces(self, "copy_content_to_workspace")

    async def copy_from_workspace(self, rollout_id: str, src_filename: str, dst_path: Path) -> None:
        """Take a file out of the rollout's private directory."""
        raise _no_workspaces(self, "copy_from_workspace")


def _no_workspaces(env: BaseEnv, hook: str) -> NotImplementedError:
    return NotImplementedError(f"{type(env).__name__} has no workspaces; override {hook} to add them.")


def overrides(env: BaseEnv | type[BaseEnv], hook: str) -> bool:
    """Whether the environment overrides a hook."""
    cls = env if isinstance(env, type) else type(env)
    own, base = getattr(cls, hook), getattr(BaseEnv, hook)
    if getattr(own, "__func__", own) is not getattr(base, "__func__", base):  # classmethods are bound anew at each look
        return True
    return not isinstance(env, type) and hook in vars(env)


def primary_key(env: BaseEnv) -> str | dict[str, str | None] | None:
    """The component that says whether a task was solved; of a composed environment, that of each part."""
    if env.composed_of:
        return {name: facts["primary"] for name, facts in env.composed_of.items()}
    return env.PRIMARY_REWARD_KEY


def with_system_prompt(messages: Sequence[ChatMessage], system_prompt: str) -> Messages:
    """The messages with the system prompt first, unless they have one."""
    if not system_prompt or any(message.get("role") == "system" for message in messages):
        return list(messages)
    return [{"role": "system", "content": system_prompt}, *messages]


def as_messages(prompt: Any) -> Messages:
    """A prompt as messages: a text is what the user says."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
