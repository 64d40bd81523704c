"""The classes that verifiers loads for `benchmax-verifiers`.

    vf-eval benchmax-verifiers --env.taskset.env arithmetic -n 4 -m MODEL --client.base-url URL

verifiers and its worker processes find these by their names, so they stand at the top of this module, which only
verifiers imports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import parse_message

from benchmax.adapters.env_session import EnvSession, named_session
from benchmax.adapters.verifiers.rollouts import Assignment, Siblings, messages_of, play_one, siblings
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import find_rows, load_env_class
from benchmax.errors import RolloutError, UsageError
from benchmax.models.http import HttpModel
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.settings import RolloutSettings

STOP_WORDS = {Termination.MAX_TURNS: "max_turns", Termination.TOKEN_BUDGET: "max_output_tokens"}
"""Terminations for which verifiers has a stop condition of its own; the others keep our name."""
TIME_SHARE = 0.9
"""The part of verifiers' timeout after which we end a rollout ourselves, so that it is scored."""


class BenchmaxData(vf.TaskData):  # type: ignore[misc]
    """One example, and the environment that it belongs to."""

    env: str = ""
    env_args: dict[str, Any] = Field(default_factory=dict)
    example: dict[str, Any] = Field(default_factory=dict)


class BenchmaxTask(vf.Task[BenchmaxData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """One example as verifiers plays it."""

    @property
    def key(self) -> str:
        return str(self.data.id)

    async def finalize(self, trace: Any, runtime: Any) -> None:
        """Raise for a rollout that was cut before it was scored: its reward is not 0."""
        if "benchmax" not in trace.info:
            raise RolloutError("The rollout was stopped before it could be scored. Raise --env.agent.timeout.rollout.")


class BenchmaxTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    env: str = ""
    """The environment: a name, main.py:Class or package.module.Class."""
    data: str | None = None
    """Its rows: a file, hf:owner/name, or a name that it loads itself; its own when not set."""
    env_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its constructor."""


class BenchmaxTaskset(vf.Taskset[BenchmaxTask, BenchmaxTasksetConfig]):  # type: ignore[misc]
    """The rows of an environment."""

    def load(self) -> Iterator[BenchmaxTask]:
        config = self.config
        if not config.env:
            raise UsageError("Name the environment: --env.taskset.env arithmetic, or main.py:Class.")
        env = load_env_class(config.env)
        for example in load_examples(find_rows(env, config.data), env):
            own_system = any(message["role"] == "system" for message in example["prompt_messages"])
            yield BenchmaxTask(
                BenchmaxData(
                    id=example["id"],
                    prompt=[parse_message(dict(message)) for message in example["prompt_messages"]],
                    system_prompt=None if own_system else env.system_prompt or None,
                    env=config.env,
                    env_args=config.env_args,
                    example=json.loads(json.dumps(example)),
                ),
                config.task,
            )


class BenchmaxHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    tool_format: Literal["native", "hermes"] = "native"
    """`hermes` writes tools and calls as text, for chat templates without tools."""
    max_tool_calls: int | None = None
    """Tool calls of one rollout; what the environment recommends when not set."""


class BenchmaxHarness(vf.Harness[BenchmaxHarnessConfig]):  # type: ignore[misc]
    """Plays a rollout in this process; the model is asked through verifiers."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Returns when the rollout is over; raises when it has no reward, which verifiers records and goes on."""
        session = await asyncio.to_thread(named_session, data.env, data.env_args)
        model = HttpModel(ctx.model, endpoint, secret, tool_format=self.config.tool_format, token_ids=False)
        settings = self._settings(trace)
        example: Any = {**data.example, "prompt_messages": messages_of(data)}  # the prompt as verifiers has it now
        work = Assignment(trace.id, example, model, settings, lambda: trace.stop_condition)
        rollout = await play_one(session, work)
        if not rollout.ok and not _waits_for_group(session, rollout):
            raise failed(trace, rollout)
        record(trace, rollout, session.host.env.reward_weights)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    def _settings(self, trace: Any) -> RolloutSettings:
        """verifiers' limits for the agent as ours, which end a rollout so that it is scored."""
        agent, task = trace.agent.config, trace.task.data.timeout
        settings = RolloutSettings(
            max_turns=agent.max_turns, max_tokens=agent.max_output_tokens, max_tool_calls=self.config.max_tool_calls
        )
        if seconds := agent.timeout.rollout or task.agent:
            settings = replace(settings, max_seconds=min(settings.max_seconds, TIME_SHARE * seconds))
        return settings


def _waits_for_group(session: EnvSession, rollout: Rollout) -> bool:
    """Whether all that is missing for a total is the group's part of it."""
    complete = rollout.scorable and rollout.error is None and not rollout.unscored
    return complete and session.host.overrides("compute_group_reward")


def record(trace: Any, rollout: Rollout, weights: Any) -> None:
    """The rollout's components as verifiers' rewards, and how it went as metrics."""
    for name, value in rollout.rewards.items():
        trace.record_reward(name, value, weights.get(name, 1.0))
    trace.record_metrics({"turns": rollout.turns, "tool_calls": len(rollout.tool_events)})
    trace.info["benchmax"] = {"rollout": rollout.id, "termination": rollout.termination.value}
    if rollout.termination is not Termination.FINISHED:
        trace.stop(STOP_WORDS.get(rollout.termination, rollout.termination.value))


def failed(trace: Any, rollout: Rollout) -> RolloutError:
    """The error of a rollout without a reward, which verifiers records on the trace."""
    trace.info["benchmax"] = {"rollout": rollout.id, "termination": rollout.termination.value}
    why = rollout.error.message if rollout.error else "; ".join(rollout.unscored.values()) or "it has no reward"
    return RolloutError(f"{rollout.termination.value}: {why}")


class BenchmaxEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The one agent of an episode; nothing of the rollout runs in its runtime, so that is this machine."""
    siblings: int = Field(1, ge=1)
    """Rollouts of one episode, which `compute_group_reward` scores together."""


class BenchmaxEnv(vf.Env[BenchmaxEnvConfig]):  # type: ignore[misc]
    """Plays a task once, or several times for a reward of the group."""

    async def run(self, task: BenchmaxTask, agents: Any) -> None:
        with siblings() as group:
            async with asyncio.TaskGroup() as tasks:
                runs = [tasks.create_task(agents.agent.run(task)) for _ in range(self.config.siblings)]
            traces = [each.result() for each in runs]
            if group.played:
                await self._score(task, group, traces)
        for trace in traces:
            if not trace.ok and (ours := trace.info.get("benchmax")):
                trace.stop(ours["termination"], override=True)  # with our reason, where there is one

    async def _score(self, task: BenchmaxTask, group: Siblings, traces: list[Any]) -> None:
        session = named_session(task.data.env, task.data.env_args)
        await group.score(session, RolloutSettings(), [trace.id for trace in traces])
        for trace in traces:
            rollout = group.played.get(trace.id)
            if rollout is None or not trace.ok:
                continue
            if rollout.ok:
                record(trace, rollout, session.host.env.reward_weights)
            else:
                trace.record_error(failed(trace, rollout))
