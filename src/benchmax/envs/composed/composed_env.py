"""Several environments as one: `benchmax train math,crm`, or in Python

    Mixed = compose(math=MathEnvLocal, mine=MyEnv, weights={"math": 2})

    class Mixed(ComposedEnv):
        parts = {"math": "math", "mine": MyEnv}

Each row belongs to one part, and its rollouts are those of that part: its system prompt, its tools, its rewards, its
state. Reward components carry the part's name (`math/match`), so their curves and their weights stay apart. A composed
environment is an ordinary `BaseEnv`; rows name their part in the column `env`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmax.concurrency import call_function
from benchmax.envs.base_env import BaseEnv, PartFacts, overrides, with_system_prompt
from benchmax.envs.composed.parts import (
    PART,
    check_name,
    checked_weight,
    own_arguments,
    own_task,
    part_name,
    part_of,
    part_of_row,
)
from benchmax.envs.datasets.readers import read_rows
from benchmax.envs.example_id import make_example
from benchmax.envs.legacy import example_from, group_reward_arguments, reward_arguments
from benchmax.envs.rollout_state import RolloutState
from benchmax.envs.types import Example, Messages, RewardValue, ToolCall, ToolDefinition
from benchmax.errors import EnvDefinitionError, ToolError, UsageError

NAME_CHARS = 60
NAMED_APART = "__"
"""Stands between part and tool in `list_tools`, where several parts have a tool of one name."""


class ComposedEnv(BaseEnv):
    """Several environments in one. Set `parts` in a subclass, or call `compose`."""

    parts: ClassVar[Mapping[str, Any]] = {}
    """An environment class by the name of each part, or what names one on the command line."""
    weights: ClassVar[Mapping[str, float]] = {}
    """How often each part is drawn, when the parts bring their own rows; 1 when not named."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "parts" in vars(cls):
            _set_up(cls)

    def __init__(self, **arguments: Any) -> None:
        """The arguments of each part's constructor, as a dict under the part's name."""
        from benchmax.envs.loading import constructor_parameters, make_env  # it loads this room

        for name, given in arguments.items():
            if name not in self.parts or not isinstance(given, Mapping):
                takers = [part for part, cls in self.parts.items() if name in constructor_parameters(cls)]
                where = f"{name}.KEY" if name in self.parts else f"{[*takers, *self.parts][0]}.{name}"
                raise UsageError(
                    f"The argument {name!r} does not say to which of the environments it belongs: "
                    f"{', '.join(self.parts)}. Write it like --env-arg {where}=VALUE."
                )
        self._envs: dict[str, BaseEnv] = {
            name: make_env(cls, arguments.get(name, {})) for name, cls in self.parts.items()
        }
        self._rollouts: RolloutState[str] = RolloutState()
        """The part of each rollout that was begun."""
        self._tools: dict[str, list[ToolDefinition]] = {}
        self.composed_of = {name: _facts(name, env) for name, env in self._envs.items()}
        self.reward_weights = _reward_weights(self._envs)  # type: ignore[misc]

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        """A row `{"env": part, "row": {…}}`, or with the part's columns beside `env`."""
        name = cls._known(part_of_row(example))
        return cls._wrapped(name, example_from(cls.parts[name].dataset_preprocess(cls.own_row(example), **kwargs)))

    @staticmethod
    def own_row(row: Mapping[str, Any]) -> Any:
        """A row as its part reads it."""
        nested = row.get("row")
        return nested if isinstance(nested, Mapping) else {key: value for key, value in row.items() if key != "env"}

    @classmethod
    def _wrapped(cls, name: str, made: Example) -> Example:
        """An example of a part, with the part's name in its task, and so in its id."""
        task = made.get("task")
        return make_example(
            prompt_messages=with_system_prompt(made["prompt_messages"], cls.parts[name].system_prompt),
            task={**(task or {}), PART: name},
            init_rollout_args={**(made.get("init_rollout_args") or {}), PART: name},
        )

    @classmethod
    def _known(cls, name: str) -> str:
        if name not in cls.parts:
            raise UsageError(
                f"A row names the environment {name!r} in its column `env`; there are: {', '.join(cls.parts)}. "
                'Write rows like {"env": "' + next(iter(cls.parts), "") + '", …}.'
            )
        return name

    @classmethod
    def playground_preprocess(
        cls, prompt: str | None = None, messages: Messages | None = None, env: str | None = None, **kwargs: Any
    ) -> Example:
        """What a person typed, for the part `env`; the first part when none is named."""
        name = cls._known(env or next(iter(cls.parts)))
        made: Example = cls.parts[name].playground_preprocess(prompt=prompt, messages=messages, **kwargs)
        arguments: dict[str, Any] = {**(made.get("init_rollout_args") or {}), PART: name}
        return {**made, "task": None, "init_rollout_args": arguments}

    @classmethod
    def load_dataset(cls, dataset_name: str = "", **kwargs: Any) -> tuple[list[dict[str, Any]], None]:
        """The parts' own rows, mixed by weight. `math=words,crm=cases.jsonl` names those of some parts."""
        from benchmax.envs.loading import find_rows

        named = cls._named_data(dataset_name)
        found = {name: _rows(find_rows(part, named.get(name))) for name, part in cls.parts.items()}
        return [{"env": name, "row": row} for name, row in _mixed(found, cls.weights)], None

    @classmethod
    def _named_data(cls, text: str) -> dict[str, str]:
        pairs = [each.strip().partition("=") for each in text.split(",") if each.strip()]
        for name, equals, _ in pairs:
            if not equals or name not in cls.parts:
                raise UsageError(
                    f"{text!r} does not name data by part; the parts are: {', '.join(cls.parts)}. "
                    f"Write {next(iter(cls.parts))}=NAME, with commas between several, or give a file with a column "
                    "`env`."
                )
        return {name: data for name, _, data in pairs}

    # Tools

    async def list_tools(self) -> list[ToolDefinition]:
        """The tools of all parts; where two parts have different ones of a name, each has its part's name before it."""
        by_name: dict[str, list[tuple[str, ToolDefinition]]] = defaultdict(list)
        for part in self._envs:
            for tool in await self.list_part_tools(part):
                by_name[tool.name].append((part, tool))
        return [tool for name, found in by_name.items() for tool in _told_apart(name, found)]

    async def list_part_tools(self, part: str) -> list[ToolDefinition]:
        if part not in self._envs:
            return await self.list_tools()
        if part not in self._tools:
            self._tools[part] = list(await call_function(self._envs[part].list_tools) or ())
        return self._tools[part]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        part, env = self._begun(rollout_id)
        own = [tool.name for tool in await self.list_part_tools(part)]
        name = tool_name if tool_name in own else tool_name.removeprefix(f"{part}{NAMED_APART}")
        if name not in own:
            raise ToolError(f"There is no tool named {tool_name!r}. The tools are: {', '.join(own) or 'none'}.")
        return await call_function(env.run_tool, rollout_id, name, **tool_args)

    def _begun(self, rollout_id: str) -> tuple[str, BaseEnv]:
        part = self._rollouts[rollout_id]
        return part, self._envs[part]

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        """The part's components, with the part's name before each."""
        part = self._known(part_of({"task": task, "init_rollout_args": kwargs}) or self._rollouts.get(rollout_id, ""))
        score = self._envs[part].compute_reward
        given = reward_arguments(score, messages, own_task(task), own_arguments(kwargs))
        named: Mapping[str, RewardValue] = _named(part, await call_function(score, rollout_id, **given))
        return named

    async def _group_reward(
        self,
        rollout_ids: list[str],
        messages_list: list[Messages],
        tasks: list[dict[str, Any] | None],
        **kwargs: Any,
    ) -> Sequence[Mapping[str, RewardValue]]:
        """Siblings are scored by their own part alone. It is `compute_group_reward` where some part has one."""
        found: list[Mapping[str, RewardValue]] = [{} for _ in rollout_ids]
        members: dict[str, list[int]] = defaultdict(list)
        for at, (rollout, task) in enumerate(zip(rollout_ids, tasks, strict=True)):
            members[self._known(part_of({"task": task}) or self._rollouts.get(rollout, ""))].append(at)
        for part, places in members.items():
            score = self._envs[part].compute_group_reward
            own = [own_task(tasks[at]) for at in places]
            given = group_reward_arguments(score, [messages_list[at] for at in places], own)
            results = await call_function(score, [rollout_ids[at] for at in places], **given)
            if len(results) != len(places):
                raise EnvDefinitionError(
                    f"compute_group_reward of {part} returned {len(results)} results for {len(places)} rollouts. "
                    "Return a list with one dict per rollout."
                )
            for at, result in zip(places, results, strict=True):
                found[at] = _named(part, result)
        return found

    # Solutions

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        part = cls.parts.get(part_of(example))
        return part.gold_completion(_own(example)) if part else None

    @classmethod
    def gold_tool_calls(cls, example: Example) -> Sequence[ToolCall]:
        part = cls.parts.get(part_of(example))
        return part.gold_tool_calls(_own(example)) if part else ()

    def demonstrate(self, example: Example) -> Any:
        env = self._envs.get(part_of(example))
        return env.demonstrate(_own(example)) if env else None

    def estimate_rollout_tokens(self) -> int | None:
        known = [tokens for env in self._envs.values() if (tokens := env.estimate_rollout_tokens()) is not None]
        return max(known, default=None)

    # Lifecycle

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        part = self._known(part_of({"init_rollout_args": rollout_args}))
        self._rollouts[rollout_id] = part
        await call_function(self._envs[part].init_rollout, rollout_id, **own_arguments(rollout_args))

    async def release_rollout(self, rollout_id: str) -> None:
        part = self._rollouts.pop(rollout_id, None)
        if part is not None:
            await call_function(self._envs[part].release_rollout, rollout_id)

    async def shutdown(self) -> None:
        ending = (call_function(env.shutdown) for env in self._envs.values())
        done = await asyncio.gather(*ending, return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error

    # Workspaces

    async def copy_to_workspace(self, rollout_id: str, src_path: Path, dst_filename: str | None = None) -> None:
        await self._begun(rollout_id)[1].copy_to_workspace(rollout_id, src_path, dst_filename)

    async def copy_content_to_workspace(self, rollout_id: str, src_content: str | bytes, dst_filename: str) -> None:
        await self._begun(rollout_id)[1].copy_content_to_workspace(rollout_id, src_content, dst_filename)

    async def copy_from_workspace(self, rollout_id: str, src_filename: str, dst_path: Path) -> None:
        await self._begun(rollout_id)[1].copy_from_workspace(rollout_id, src_filename, dst_path)


def compose(
    *environments: type[BaseEnv] | str,
    weights: Mapping[str, float] | None = None,
    **named: type[BaseEnv] | str,
) -> type[ComposedEnv]:
    """A class composed of several environments, each a class or what names one on the command line."""
    parts: dict[str, Any] = {}
    for given in environments:
        parts[part_name(given if isinstance(given, str) else given.__name__, parts)] = given
    for name in named:
        if name in parts:
            raise UsageError(f"Two environments are named {name!r}. Give one of them another name.")
    parts |= named
    members = {"parts": parts, "weights": dict(weights or {}), "__module__": __name__}
    return type("_".join(parts)[:NAME_CHARS] or "composed", (ComposedEnv,), members)


# Making a class


def _set_up(cls: type[ComposedEnv]) -> None:
    """Resolve the parts, and give the class what follows from them."""
    if not cls.parts:
        raise EnvDefinitionError(f"{cls.__name__} has no parts. Name at least one environment.")
    cls.parts = {check_name(name): _resolved(name, given) for name, given in cls.parts.items()}
    unknown = [name for name in cls.weights if name not in cls.parts]
    if unknown:
        raise UsageError(f"There is no part {unknown[0]!r} to weigh. The parts are: {', '.join(cls.parts)}.")
    cls.weights = {name: checked_weight(name, cls.weights.get(name, 1.0)) for name in cls.parts}
    cls.composed_of = {name: _facts(name, part) for name, part in cls.parts.items()}
    cls.reward_weights = _reward_weights(cls.parts)
    cls.PIP_DEPENDENCIES = tuple(dict.fromkeys(each for part in cls.parts.values() for each in part.PIP_DEPENDENCIES))
    cls.NETWORK = "host" if any(part.NETWORK == "host" for part in cls.parts.values()) else "none"
    if not cls.__doc__:
        cls.__doc__ = f"{' and '.join(cls.parts)} in one run, each with its own tools and rewards."
    if any(overrides(part, "compute_group_reward") for part in cls.parts.values()):
        cls.compute_group_reward = ComposedEnv._group_reward  # type: ignore[method-assign]


def _resolved(name: str, given: Any) -> type[BaseEnv]:
    from benchmax.envs.loading import is_env_class, load_env_class  # it loads this room

    given = load_env_class(given) if isinstance(given, str) else given
    if not is_env_class(given):
        raise EnvDefinitionError(f"The part {name!r} is {given!r}. Give an environment class, or its name.")
    if issubclass(given, ComposedEnv):
        raise EnvDefinitionError(f"The part {name!r} is composed itself. Name its parts instead.")
    return given


def _facts(name: str, env: BaseEnv | type[BaseEnv]) -> PartFacts:
    return {
        "system_prompt": env.system_prompt,
        "max_turns": env.recommended_max_turns,
        "max_tool_calls": env.recommended_max_tool_calls,
        "primary": f"{name}/{env.PRIMARY_REWARD_KEY}" if env.PRIMARY_REWARD_KEY else None,
    }


def _reward_weights(envs: Mapping[str, BaseEnv | type[BaseEnv]]) -> dict[str, float]:
    return {f"{part}/{name}": weight for part, env in envs.items() for name, weight in env.reward_weights.items()}


# Details


def _mixed(rows: Mapping[str, Sequence[Any]], weights: Mapping[str, float]) -> list[tuple[str, Any]]:
    """(part, row) for the rows taken: any beginning of the list has each part by its weight, in every trainer."""
    counts = {name: len(each) for name, each in rows.items() if each}
    most = min((count / weights[name] for name, count in counts.items()), default=0.0)
    taken = {name: max(1, min(count, round(most * weights[name]))) for name, count in counts.items()}
    places = [
        ((number + 0.5) / count, order, name, number)
        for order, (name, count) in enumerate(taken.items())
        for number in range(count)
    ]
    return [(name, rows[name][number]) for _, _, name, number in sorted(places)]


def _rows(source: Any) -> list[Any]:
    """A part's rows, all of them: they are mixed by their number."""
    if not isinstance(source, str):
        return list(source)
    found = list(read_rows(source))
    for row in found:
        if row.fault is not None:
            raise UsageError(f"{row.issue(row.fault)}. Correct {source} first.")
    return [row.data for row in found]


def _told_apart(name: str, found: Sequence[tuple[str, ToolDefinition]]) -> Iterable[ToolDefinition]:
    first = found[0][1]
    if all(tool == first for _, tool in found):
        return [first]
    return [ToolDefinition(f"{part}{NAMED_APART}{name}", tool.description, tool.input_schema) for part, tool in found]


def _named(part: str, rewards: Any) -> Any:
    """Components with the part's name before each; the caller reports what is no dict."""
    return {f"{part}/{name}": value for name, value in rewards.items()} if isinstance(rewards, Mapping) else rewards


def _own(example: Example) -> Example:
    """An example as its part made it, but for its id."""
    arguments = own_arguments(example.get("init_rollout_args") or {}) or None
    return {**example, "task": own_task(example.get("task")), "init_rollout_args": arguments}
