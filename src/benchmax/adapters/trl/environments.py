"""`environment_factory` for TRL's GRPOTrainer: the simple case, in which TRL's own loop calls our tools.

    simple = BenchmaxEnvironments(MyEnv, rows)
    trainer = GRPOTrainer(
        model=…, args=GRPOConfig(…), train_dataset=simple.dataset(),
        environment_factory=simple.environment_class(), reward_funcs=simple.reward,
    )

TRL renders the tools, parses the calls and keeps the tokens; it knows the chat templates it ships. It waits for the
tools of one rollout before it turns to the next: `BenchmaxRollouts` does not.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from keyword import iskeyword
from time import perf_counter
from typing import Any

from benchmax.adapters.batches import summary
from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.example_rows import carried, carry
from benchmax.concurrency import all_or_cancel
from benchmax.envs.base_env import BaseEnv, with_system_prompt
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import make_env
from benchmax.envs.types import ChatMessage, Example, ToolCall, ToolDefinition, ToolResult, nest_tool_calls
from benchmax.errors import EnvLost, McpError, ToolError, UsageError, describe_error
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.play import fail, new_rollout
from benchmax.rollouts.record import Rollout, Termination, ToolEvent
from benchmax.rollouts.scoring import deep_copy, score, settle_group
from benchmax.rollouts.settings import RolloutSettings
from benchmax.rollouts.toolbox import as_result, clean_text

logger = logging.getLogger(__name__)

RESERVED = ("reset", "get_reward")
"""Methods that TRL knows itself."""
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict,
}  # fmt: skip


class BenchmaxEnvironments:
    """One environment and its rows for TRL's own loop."""

    def __init__(
        self,
        env: type[BaseEnv],
        rows: Any,
        *,
        env_args: Mapping[str, Any] | None = None,
        settings: RolloutSettings = RolloutSettings(),
    ) -> None:
        self.env, self.settings = env, settings
        self.examples: list[Example] = list(load_examples(rows, env))
        self.session = EnvSession(partial(make_env, env, dict(env_args or {})))
        self.tools: Sequence[ToolDefinition] = self.session.run(self.session.host.toolbox()).tools

    def dataset(self, rows: Any = None) -> Any:
        """The rows as a dataset for the trainer; or other `rows`, such as those to evaluate on."""
        from datasets import Dataset

        examples = self.examples if rows is None else list(load_examples(rows, self.env))
        return Dataset.from_list(
            [
                {"prompt": with_system_prompt(each["prompt_messages"], self.env.system_prompt), **carry(each)}
                for each in examples
            ]
        )

    def environment_class(self) -> type[RolloutEnvironment]:
        """A class with a method for each tool, whose docstring and types are the tool's schema."""
        if odd := next(_odd_names(self.tools), None):
            raise UsageError(f"{odd}, which TRL needs. Use BenchmaxRollouts instead.")
        members: dict[str, Any] = {tool.name: _method(tool) for tool in self.tools}
        members["_owner"] = self
        return type(f"{self.env.__name__}Rollout", (RolloutEnvironment,), members)

    def reward(self, prompts: Any, completions: Any, environments: Any, **columns: Any) -> list[float | None]:
        """TRL's reward function: the transcripts scored by the environment, siblings together; then all is released."""
        for environment, completion in zip(environments, completions, strict=True):
            environment._end([nest_tool_calls(message) for message in completion])
        groups: dict[str, list[RolloutEnvironment]] = {}
        for environment in environments:
            groups.setdefault(environment._rollout.example_id, []).append(environment)
        self.session.run(all_or_cancel(map(self._score_group, groups.values())))
        rollouts = [environment._rollout for environment in environments]
        if log := columns.get("log_metric"):
            for name, value in summary(rollouts).items():
                log(name, value)
        return [rollout.reward for rollout in rollouts]

    async def _score_group(self, group: Sequence[RolloutEnvironment]) -> None:
        host, rollouts = self.session.host, [each._rollout for each in group]
        await asyncio.gather(*(score(host, rollout, self.settings) for rollout in rollouts if rollout.scorable))
        await settle_group(host, rollouts, self.settings)
        for environment in group:
            await environment._release()

    def close(self) -> None:
        """Release the environment."""
        self.session.close()


class RolloutEnvironment:
    """One rollout, as TRL holds it. TRL takes every public method but `reset` for a tool."""

    _owner: BenchmaxEnvironments
    _rollout: Rollout
    _begun = False

    def reset(self, **row: Any) -> None:
        """Begin the rollout of a row; TRL uses an object again for the next one."""
        owner = self._owner
        owner.session.run(self._release())
        example = carried({key: value for key, value in row.items() if key != "prompt"}, row.get("prompt") or ())
        self._rollout = new_rollout(owner.session.host, example, ScriptedModel("trl"), split="train")
        self._rollout.termination = Termination.FINISHED
        owner.session.run(self._begin())

    async def _begin(self) -> None:
        owner, rollout = self._owner, self._rollout
        try:
            arguments = deep_copy(rollout.init_rollout_args or {})
            call = owner.session.host.start("init_rollout", (rollout.id,), arguments)
            self._begun = True
            await owner.session.host.outcome(call, owner.settings.init_seconds)
        except Exception as error:
            fail(rollout, error, Termination.ENV_ERROR, "init_rollout")

    async def _release(self) -> None:
        """Release what was begun; a hook that raises costs no sibling."""
        if not self._begun:
            return
        self._begun = False
        host, seconds = self._owner.session.host, self._owner.settings.release_seconds
        try:
            await host.call("release_rollout", self._rollout.id, deadline=seconds)
        except Exception as error:
            logger.warning("release_rollout of %s failed: %s", host.name, describe_error(error))

    def _end(self, completion: Sequence[ChatMessage]) -> None:
        """Take over what TRL made of the conversation.

        Where it ends with calls, TRL granted no further turn: it ran them and dropped answers that did not fit, or it
        did not run them.
        """
        rollout, names = self._rollout, {tool.name for tool in self._owner.tools}
        rollout.messages.extend(completion)
        events = iter(rollout.tool_events)
        for message in completion:
            if message["role"] == "assistant":
                rollout.turns += 1
                calls = sum(call["function"]["name"] in names for call in message.get("tool_calls") or ())
                for event in islice(events, calls):
                    event.turn = rollout.turns
        if rollout.termination is not Termination.FINISHED or not completion[-1].get("tool_calls"):
            return
        answers = sum(message["role"] == "tool" and message.get("name") in names for message in completion)
        dropped = len(rollout.tool_events) > answers
        rollout.termination = Termination.CONTEXT_EXCEEDED if dropped else Termination.MAX_TURNS

    async def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Run a tool; a failure is raised with the text that the model is to read."""
        given = {name: value for name, value in arguments.items() if value is not None}
        began, ok = perf_counter(), False
        try:
            result = await self._owner.session.outcome(self._run(tool, given))
            ok = not result.is_error
        except Exception as error:
            if isinstance(error, EnvLost | McpError):  # its process or its server is gone
                fail(self._rollout, error, Termination.ENV_ERROR, "run_tool")
            raise ToolError(describe_error(error).removeprefix(f"{type(error).__name__}: ")) from None
        finally:
            self._rollout.tool_events.append(ToolEvent(0, tool, ok, perf_counter() - began))
        return clean_text(result.text, self._owner.settings.tool_output_chars)

    async def _run(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        host, settings = self._owner.session.host, self._owner.settings
        checked = (await host.toolbox()).arguments(ToolCall(tool, json.dumps(arguments)))
        running = host.start("run_tool", (self._rollout.id, tool), checked, tool, settings.tool_seconds)
        return as_result(await host.outcome(running, settings.tool_seconds))


def _odd_names(tools: Sequence[ToolDefinition]) -> Iterator[str]:
    """What cannot be written as a method of Python's."""
    for tool in tools:
        if not _is_name(tool.name) or tool.name[0] == "_" or tool.name in RESERVED:
            yield f"The tool {tool.name!r} cannot be a method's name"
        for name in (tool.input_schema or {}).get("properties", {}):
            if not _is_name(name) or name == "self":
                yield f"The argument {name!r} of the tool {tool.name!r} cannot be a parameter's name"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def _method(tool: ToolDefinition) -> Callable[..., Any]:
    """An async method with the tool's name, types and docstring, from which TRL makes its schema."""

    async def method(self: RolloutEnvironment, **arguments: Any) -> str:
        return await self._call(tool.name, arguments)

    schema = tool.input_schema or {}
    required = set(schema.get("required") or ())
    hints = {name: _hint(part, name in required) for name, part in schema.get("properties", {}).items()}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name in sorted(hints, key=lambda name: name not in required):
        default = inspect.Parameter.empty if name in required else None
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        )
    method.__name__ = method.__qualname__ = tool.name
    method.__annotations__ = {**hints, "return": str}
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    method.__doc__ = _docstring(tool, schema.get("properties", {}))
    return method


def _hint(schema: Any, required: bool) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    hint = _TYPES.get(kind, str) if isinstance(kind, str) else str
    return hint if required else hint | None


def _docstring(tool: ToolDefinition, properties: Mapping[str, Any]) -> str:
    """The description, and the arguments as Google writes them."""
    lines = [tool.description or tool.name, "", *(["Args:"] if properties else [])]
    for name, schema in properties.items():
        says = schema.get("description") if isinstance(schema, Mapping) else None
        lines.append(f"    {name}: {' '.join(str(says or name).split())}")
    return "\n".join(lines)
