"""One rollout: prompt the model and run its tools, until it answers or a budget is used up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter, time
from typing import Any

from benchmax import limits
from benchmax.concurrency import all_or_cancel
from benchmax.deadlines import deadline
from benchmax.envs.base_env import with_system_prompt
from benchmax.envs.logging import captured, rollout_context
from benchmax.envs.remote.routing import example_context
from benchmax.envs.types import ChatMessage, Example, ToolCall, Transcript, nest_tool_calls
from benchmax.errors import ContextExceeded, DeadlineExceeded, EnvLost, McpError, ModelTimeout, describe_error
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling, checked_reply
from benchmax.rollouts.arguments import check_example, check_players
from benchmax.rollouts.hooks import Call
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Failure, LogLine, Rollout, Termination, ToolEvent, new_id
from benchmax.rollouts.scoring import deep_copy, finish, score
from benchmax.rollouts.settings import RolloutSettings
from benchmax.rollouts.toolbox import BadToolCall, Toolbox, as_result, clean_text, tool_calls_of

logger = logging.getLogger(__name__)

OnTurn = Callable[[Rollout, Sequence[ChatMessage]], None]
"""Receives new messages as they appear, for live views."""


async def run_rollout(
    host: EnvHost,
    example: Example,
    model: ModelClient,
    settings: RolloutSettings = RolloutSettings(),
    *,
    sample: int = 0,
    attempt: int = 0,
    split: str = "eval",
    step: int | None = None,
    on_turn: OnTurn | None = None,
) -> Rollout:
    """Play one example and score it. Whatever fails is recorded; only cancellation is raised, and wrong arguments."""
    check_players(host, model, settings)
    check_example(example)
    rollout = new_rollout(host, example, model, sample=sample, attempt=attempt, split=split, step=step)
    async with open_rollout(host, rollout, settings) as ready:
        if ready:
            await play(host, rollout, model, settings, on_turn)
            if settings.score and rollout.scorable:
                await score(host, rollout, settings)
    finish(host, rollout, settings)
    return rollout


def new_rollout(host: EnvHost, example: Example, model: ModelClient, **place: Any) -> Rollout:
    """The record of a rollout that is about to be played; `place` are its sample, attempt, split and step."""
    part = host.part_of(example)
    prompt = with_system_prompt(example["prompt_messages"], host.system_prompt(part))
    return Rollout(
        id=new_id(),
        example_id=example["id"],
        env=part or host.name,
        model=model.name,
        messages=Transcript(map(nest_tool_calls, prompt)),
        task=example.get("task"),
        init_rollout_args=example.get("init_rollout_args"),
        started_at=time(),
        **place,
    )


@asynccontextmanager
async def open_rollout(host: EnvHost, rollout: Rollout, settings: RolloutSettings) -> AsyncIterator[bool]:
    """Run init_rollout before the block and release_rollout after it; yields whether the environment is ready."""
    began = perf_counter()
    stateful = host.overrides("init_rollout") or host.overrides("release_rollout")
    with (
        rollout_context(rollout.id),
        example_context(rollout.example_id),
        captured(rollout.id, _log_sink(rollout, began)),
    ):
        init: Call | None = None
        ready = True
        try:
            if stateful:
                init = host.start("init_rollout", (rollout.id,), deep_copy(rollout.init_rollout_args or {}))
                try:
                    await host.outcome(init, settings.init_seconds)
                except Exception as error:
                    ready = False
                    fail(rollout, error, Termination.ENV_ERROR, "init_rollout")
            rollout.seconds["init"] = perf_counter() - began
            yield ready
        finally:
            if init and init.begun:
                await _release(host, rollout, settings)
            rollout.seconds["total"] = perf_counter() - began


async def _release(host: EnvHost, rollout: Rollout, settings: RolloutSettings) -> None:
    """Release, even while being cancelled: the hook gets its time, then the cancellation is raised."""
    release = asyncio.ensure_future(host.call("release_rollout", rollout.id, deadline=settings.release_seconds))
    cancelled: asyncio.CancelledError | None = None
    while not release.done():
        try:
            await asyncio.wait([release])
        except asyncio.CancelledError as error:
            cancelled = error
    if not release.cancelled() and (failure := release.exception()):
        logger.warning("release_rollout of %s failed: %s", host.name, describe_error(failure))
    if cancelled:
        raise cancelled


def fail(rollout: Rollout, error: BaseException, reason: Termination, where: str) -> None:
    rollout.termination = reason
    rollout.error = Failure.of(error, where)


async def play(
    host: EnvHost,
    rollout: Rollout,
    model: ModelClient,
    settings: RolloutSettings,
    on_turn: OnTurn | None = None,
) -> None:
    """Alternate between model and tools until something ends the rollout; sets its termination."""
    part = rollout.env if rollout.env in host.env.composed_of else ""
    try:
        toolbox = await host.toolbox(part)
    except Exception as error:
        fail(rollout, error, Termination.ENV_ERROR, "list_tools")
        return
    try:
        conversation = model.converse(tools=toolbox.tools, sampling=seeded(settings.sampling, rollout))
    except Exception as error:
        fail(rollout, error, Termination.MODEL_ERROR, "model")
        return
    time_budget = deadline(settings.max_seconds)
    try:
        tool_calls = max(0, settings.tool_calls_for(host.env, part))
        player = RolloutPlayer(host, rollout, conversation, settings, toolbox, part, on_turn, tool_calls)
        with time_budget:
            rollout.termination = await player.play()
    except Exception as error:
        if time_budget.expired:
            rollout.termination = Termination.TIME_BUDGET
        else:
            fail(rollout, error, Termination.ENV_ERROR, "run_tool")
    finally:
        await _close(conversation, model)


async def _close(conversation: Conversation, model: ModelClient) -> None:
    try:
        await conversation.aclose()
    except Exception as error:  # the rollout is over
        logger.warning("A conversation with %s could not be closed: %s", model.name, describe_error(error))


def seeded(sampling: Sampling, rollout: Rollout) -> Sampling:
    """The same sampling with a seed derived for the rollout, so that siblings differ and a repetition does not."""
    if sampling.seed is None:
        return sampling
    place = f"{sampling.seed}:{rollout.split}:{rollout.step}:{rollout.example_id}:{rollout.sample}"
    seed = int.from_bytes(sha256(place.encode()).digest()[:4]) >> 1
    return sampling.with_seed(seed, sampling.max_tokens)


@dataclass(slots=True)
class RolloutPlayer:
    """One rollout being played: its conversation, its tools and its budgets."""

    host: EnvHost
    rollout: Rollout
    conversation: Conversation
    settings: RolloutSettings
    toolbox: Toolbox
    part: str
    on_turn: OnTurn | None
    tool_calls_left: int

    async def play(self) -> Termination:
        rollout = self.rollout
        new: Sequence[ChatMessage] = list(rollout.messages)
        most = self.settings.turns_for(self.host.env, self.part)
        while True:
            began = perf_counter()
            try:
                reply = await self._model_turn(new)
            except ContextExceeded as error:
                if not rollout.turns:
                    rollout.error = Failure.of(error, "model")
                return Termination.CONTEXT_EXCEEDED
            except (Exception, SystemExit) as error:
                fail(rollout, error, Termination.MODEL_ERROR, "model")
                return Termination.MODEL_ERROR
            finally:
                self._add_seconds("model", began)
            calls = tool_calls_of(reply.message)
            end = self._after_turn(reply, bool(calls))
            if end:
                return end
            began = perf_counter()
            new, end = await self._tool_turn(calls)
            self._add_seconds("tools", began)
            if end or rollout.turns >= most:
                return end or Termination.MAX_TURNS

    async def _model_turn(self, new: Sequence[ChatMessage]) -> Reply:
        seconds = self.settings.model_seconds
        timer = deadline(seconds)
        try:
            with timer:
                reply = checked_reply(await self.conversation.reply(new, max_tokens=self._tokens_left()))
        except TimeoutError:
            if timer.expired:
                raise ModelTimeout(f"The model returned no reply within {seconds:g} s. Raise model_seconds.") from None
            raise
        rollout = self.rollout
        rollout.turns += 1
        rollout.usage.add(reply.usage)
        self._keep_tokens(reply)
        self._append([reply.message])
        return reply

    def _keep_tokens(self, reply: Reply) -> None:
        """Keep exact tokens for all turns or for none: a part of them would train on a wrong history."""
        rollout = self.rollout
        if reply.segments and (rollout.turns == 1 or rollout.tokens):
            rollout.tokens.extend(reply.segments)
        else:
            rollout.tokens.clear()

    def _tokens_left(self) -> int | None:
        if self.settings.max_tokens is None:
            return None
        return max(1, self.settings.max_tokens - self.rollout.usage.completion_tokens)

    def _append(self, messages: Sequence[ChatMessage]) -> None:
        self.rollout.messages.extend(messages)
        if self.on_turn:
            self.on_turn(self.rollout, messages)

    def _add_seconds(self, phase: str, began: float) -> None:
        seconds = self.rollout.seconds
        seconds[phase] = seconds.get(phase, 0.0) + perf_counter() - began

    def _after_turn(self, reply: Reply, calls_tools: bool) -> Termination | None:
        """Why the rollout ends after this turn, or None."""
        settings, usage = self.settings, self.rollout.usage
        out_of_tokens = settings.max_tokens is not None and usage.completion_tokens >= settings.max_tokens
        if not calls_tools:
            if reply.finish == "length":
                return Termination.TOKEN_BUDGET if out_of_tokens else Termination.OUTPUT_EXCEEDED
            return Termination.FINISHED
        if out_of_tokens:
            return Termination.TOKEN_BUDGET
        if settings.max_cost_usd is not None and usage.cost_usd >= settings.max_cost_usd:
            return Termination.COST_BUDGET
        return None

    async def _tool_turn(self, calls: Sequence[ToolCall]) -> tuple[list[ChatMessage], Termination | None]:
        """Run the calls of one turn at once; those over a budget are answered and not run."""
        left = self.tool_calls_left
        allowed = min(left, limits.PARALLEL_TOOL_CALLS)
        self.tool_calls_left -= min(len(calls), allowed)
        if len(calls) == 1 and allowed:
            results = [await self._run_tool(calls[0])]
        else:
            results = await all_or_cancel(self._run_tool(call) for call in calls[:allowed])
            refusal = "Error: too many tool calls; this one was not run."
            results += [self._tool_message(call, refusal, ok=False, seconds=0.0) for call in calls[allowed:]]
        self._append(results)
        return results, Termination.TOOL_BUDGET if len(calls) > left else None

    async def _run_tool(self, call: ToolCall) -> ChatMessage:
        began = perf_counter()
        try:
            arguments = self.toolbox.arguments(call)
            seconds = self.settings.tool_seconds
            running = self.host.start("run_tool", (self.rollout.id, call.name), arguments, call.name, seconds)
            result = as_result(await self.host.outcome(running, seconds))
        except BadToolCall as wrong:
            return self._tool_message(call, f"Error: {wrong}", ok=False, seconds=0.0)
        except (EnvLost, McpError):
            raise  # its process or its server is gone, and so further calls would fail too
        except Exception as error:
            text = _error_for_model(error, self.settings.tool_seconds)
            return self._tool_message(call, text, ok=False, seconds=perf_counter() - began)
        seconds = perf_counter() - began
        return self._tool_message(call, result.text, ok=not result.is_error, seconds=seconds, parts=result.parts)

    def _tool_message(
        self, call: ToolCall, text: str, *, ok: bool, seconds: float, parts: Sequence[dict[str, Any]] = ()
    ) -> ChatMessage:
        self.rollout.tool_events.append(ToolEvent(self.rollout.turns, call.name, ok, seconds))
        content: Any = clean_text(text, self.settings.tool_output_chars)
        if parts:
            content = [{"type": "text", "text": content}, *parts]
        return {"role": "tool", "tool_call_id": call.id or "", "name": call.name, "content": content}


def _error_for_model(error: Exception, seconds: float) -> str:
    """A tool's failure as the model reads it: without class names and without advice for developers."""
    if isinstance(error, DeadlineExceeded):
        return f"Error: The tool took longer than {seconds:g} s and was stopped."
    return f"Error: {describe_error(error).removeprefix(f'{type(error).__name__}: ')}"


def _log_sink(rollout: Rollout, began: float) -> Callable[[str, logging.LogRecord], None]:
    def keep(_: str, record: logging.LogRecord) -> None:
        if len(rollout.logs) < limits.LOG_LINES:
            message = record.getMessage()[: limits.LOG_LINE_CHARS]
            rollout.logs.append(LogLine(record.levelname, message, perf_counter() - began))

    return keep
