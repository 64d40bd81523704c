"""`verifiers:ID`: a taskset of verifiers as an environment, scored by its own rewards, with its setup and its state.

The rollout is ours, on our models and trainers. What the taskset needs beyond a conversation and a folder on this
machine is refused by name: tool servers, containers, and an interaction that it plays itself. Settings of the taskset
stand behind the id, as in `verifiers:ID?split=test`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from benchmax.adapters.imports.addresses import class_name, id_and_settings, need
from benchmax.adapters.verifiers import ADAPTER
from benchmax.adapters.verifiers.rollouts import messages_of
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import Messages, RewardValue, Unscored
from benchmax.errors import EnvDefinitionError, NotFoundError, UsageError, describe_cause

DEFAULT_ROWS = 1000
"""Tasks that are taken of a taskset without end, unless --data says how many."""


class VerifiersEnv(BaseEnv):
    """A taskset of verifiers."""

    taskset_id: ClassVar[str] = ""
    taskset_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._taskset = open_taskset(self.taskset_id, self.taskset_settings)
        self._played: dict[str, tuple[Any, Any, Any]] = {}

    @classmethod
    def load_dataset(cls, dataset_name: str = "", **kwargs: Any) -> tuple[Any, str | None]:
        """A row for each task; --data N takes the first N."""
        if dataset_name and not dataset_name.isdigit():
            raise NotFoundError(f"{dataset_name!r} is no number of tasks. Write --data 100 for the first hundred.")
        taskset = open_taskset(cls.taskset_id, cls.taskset_settings)
        most = int(dataset_name) if dataset_name else None if taskset.bounded else DEFAULT_ROWS
        return [_row(task, cls.taskset_id) for task in islice(iter(taskset), most)], None

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        import verifiers.v1 as vf
        from verifiers.v1.runtimes import make_runtime
        from verifiers.v1.utils.decorators import invoke

        task = self._task(rollout_args["verifiers_task"])
        runtime, trace = make_runtime(vf.SubprocessConfig(), name=rollout_id), _trace(task)
        self._played[rollout_id] = task, runtime, trace
        await runtime.start()
        await runtime.prepare_setup()
        await invoke(task.setup, {"trace": trace, "runtime": runtime})

    def _task(self, data: dict[str, Any]) -> Any:
        cls = type(self._taskset).task_type()
        return cls(cls.data_type().model_validate(data), self._taskset.config.task)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, RewardValue]:
        from verifiers.v1.utils.decorators import invoke

        played, runtime, trace = self._played[rollout_id]
        trace.nodes[:] = _nodes(messages)
        await invoke(played.finalize, {"trace": trace, "runtime": runtime})
        await played.score(trace, runtime)
        return {  # with verifiers' weights in them, so that the total is the same
            name: Unscored(f"verifiers did not score {name}") if reward is None else float(reward.value)
            for name, reward in trace.rewards.items()
        }

    async def release_rollout(self, rollout_id: str) -> None:
        if played := self._played.pop(rollout_id, None):
            await played[1].stop()


def open_taskset(taskset_id: str, settings: dict[str, Any]) -> Any:
    """The taskset; raises for one that cannot be played as a benchmax environment."""
    import verifiers.v1 as vf

    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        config = vf.taskset_config_type(taskset_id).model_validate({**settings, "id": taskset_id})
        taskset = vf.load_taskset(config)
    except (ImportError, AttributeError, TypeError) as error:
        raise NotFoundError(
            f"verifiers has no taskset {taskset_id!r}: {describe_cause(error)}. Install its package."
        ) from error
    except ValueError as error:
        raise UsageError(f"verifiers:{taskset_id} does not take these settings: {error}") from error
    for needs in _unmet(taskset, taskset_id):
        raise EnvDefinitionError(f"verifiers:{taskset_id} {needs}. Play it with verifiers itself.")
    return taskset


def _unmet(taskset: Any, taskset_id: str) -> Iterator[str]:
    """What the taskset needs and we do not have."""
    import verifiers.v1 as vf

    task = type(taskset).task_type()
    if vf.environment_class(taskset_id) is not vf.SingleAgentEnv:
        yield "plays an interaction of its own"
    if task.NEEDS_CONTAINER:
        yield "needs a container"
    if taskset.toolsets(taskset.config) or task.toolsets(taskset.config.task):
        yield "has tool servers of its own"


def _row(task: Any, taskset_id: str) -> dict[str, Any]:
    data = task.data
    if data.prompt is None:
        raise EnvDefinitionError(f"verifiers:{taskset_id} has tasks without a prompt. Play it with verifiers itself.")
    carried = data.model_dump(mode="json", exclude_none=True)
    return {"prompt": messages_of(data), "id": task.key, "init_rollout_args": {"verifiers_task": carried}}


def _trace(task: Any) -> Any:
    import verifiers.v1 as vf
    from verifiers.v1.state import state_cls

    of_task = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    agent = vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig()))
    return vf.Trace(task=of_task, state=state_cls(type(task))(), agent=agent)


def _nodes(messages: Messages) -> list[Any]:
    """The conversation as verifiers keeps one; what the model said is marked as sampled."""
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import parse_message

    first = getattr(messages, "completion_start", 0)
    return [
        vf.MessageNode(
            parent=index - 1 if index else None,
            message=parse_message(dict(message)),
            sampled=index >= first and message["role"] == "assistant",
        )
        for index, message in enumerate(messages)
    ]


def environment(address: str) -> type[BaseEnv]:
    """The class for `verifiers:ADDRESS`."""
    need(ADAPTER.pin)
    taskset_id, settings = id_and_settings("verifiers", address)
    members = {"taskset_id": taskset_id, "taskset_settings": settings, "__module__": __name__}
    return type(class_name("verifiers", taskset_id), (VerifiersEnv,), members)
