"""Plays prepared answers: each alone, or as siblings of one group when the reward compares siblings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from benchmax.doctor.gold.call_values import arguments, values
from benchmax.doctor.probe_answers import REFUSAL, half_golds
from benchmax.doctor.tool_arguments import arguments_for, edge_arguments
from benchmax.envs.types import Example, ToolCall, ToolDefinition
from benchmax.models.base import Conversation, ModelClient, Sampling
from benchmax.models.scripted import ScriptedConversation, ScriptedModel
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.rollouts.toolbox import BadToolCall, Toolbox

CALLS_PER_TURN = 16
EDGE_CALLS = 30 * CALLS_PER_TURN
ROW_CALLS = 8
"""Calls of one tool with values of a row."""


@dataclass(frozen=True, slots=True)
class PlayedAnswer:
    """One answer played on one example."""

    kind: str
    """The kind of answer: gold, nothing, garbage …"""
    text: str
    example: Example
    rollout: Rollout

    @property
    def total(self) -> float | None:
        return self.rollout.reward


@dataclass(frozen=True, slots=True)
class Probe:
    """An answer to play: its kind, its final text, and the tool calls made before it."""

    kind: str
    text: str
    turns: tuple[tuple[ToolCall, ...], ...] = ()

    @property
    def tools(self) -> list[str]:
        """The tools it calls, in order."""
        return [call.name for turn in self.turns for call in turn]

    def model(self) -> ScriptedModel:
        return ScriptedModel([*self.turns, self.text], name=f"doctor:{self.kind}")


def tool_turns(
    tools: Sequence[ToolDefinition], word: str = "test", times: int = 1, question: str | None = None
) -> tuple[tuple[ToolCall, ...], ...]:
    """Turns in which every tool is called, with arguments made from its schema; a search may get the question.

    Each time takes the next of the choices that a schema offers.
    """
    calls = [
        ToolCall(tool.name, json.dumps(arguments_for(tool, word, question, again)), f"{index}.{again}")
        for again in range(times)
        for index, tool in enumerate(tools)
    ]
    return in_turns(calls)


def half_probes(own: Probe, other: Probe) -> Iterator[Probe]:
    """A gold answer with one part of its text, or of one tool call's arguments, from another row's: components that
    look at different parts differ here alone."""
    for text in half_golds(own.text, other.text):
        yield Probe("half-gold", text, own.turns)
    for at, (turn, theirs) in enumerate(zip(own.turns, other.turns, strict=False)):
        if [call.name for call in turn] == [call.name for call in theirs] and len(turn) == 1:
            for mixed in half_golds(turn[0].arguments, theirs[0].arguments):
                changed = (replace(turn[0], arguments=mixed),)
                yield Probe("half-gold", own.text, (*own.turns[:at], changed, *own.turns[at + 1 :]))


def in_turns(calls: Sequence[ToolCall]) -> tuple[tuple[ToolCall, ...], ...]:
    return tuple(tuple(calls[at : at + CALLS_PER_TURN]) for at in range(0, len(calls), CALLS_PER_TURN))


def edge_calls(tools: Sequence[ToolDefinition], example: Example) -> list[ToolCall]:
    """Calls that the schemas allow: with unusual arguments, and with what the row speaks of, which a tool may know."""
    toolbox = Toolbox(tools)
    known = values(example, ())
    made = [(tool, edge) for tool in tools for edge in edge_arguments(tool)]
    made += [(tool, each.values) for tool in tools for each in islice(arguments(tool, known), ROW_CALLS) if each.values]
    calls = [ToolCall(tool.name, json.dumps(each)) for tool, each in made]
    allowed: list[ToolCall] = []
    for call in calls:
        try:
            toolbox.arguments(call)
        except BadToolCall:
            continue
        allowed.append(replace(call, id=f"edge.{len(allowed)}"))
    return allowed[:EDGE_CALLS]


class _ProbeModel(ModelClient):
    """A model that plays another probe in every conversation."""

    name = "doctor"

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._waiting = list(reversed(probes))
        self._begun: list[tuple[Probe, ScriptedConversation]] = []

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        probe = self._waiting.pop()
        self._begun.append((probe, probe.model().converse(tools=tools, sampling=sampling)))
        return self._begun[-1][1]

    def probe_of(self, rollout: Rollout) -> Probe | None:
        """The probe that was played in a rollout, identified by the message object; texts may be equal."""
        first = next(iter(rollout.completion), None)
        return next((probe for probe, talk in self._begun if any(each is first for each in talk.messages)), None)


class ProbePlayer:
    """Plays prepared answers on an environment, in the way its reward needs: alone, or as siblings."""

    def __init__(self, host: EnvHost, settings: RolloutSettings, at_once: int = 8) -> None:
        self.host, self.settings, self.at_once = host, settings, at_once
        self.grouped = host.overrides("compute_group_reward")

    async def play(self, example: Example, probes: Sequence[Probe]) -> list[PlayedAnswer]:
        played = await (self._play_group(example, probes) if self.grouped else self._play_alone(example, probes))
        return [PlayedAnswer(probe.kind, probe.text, example, rollout) for probe, rollout in played]

    async def _play_alone(self, example: Example, probes: Sequence[Probe]) -> list[tuple[Probe, Rollout]]:
        slots = asyncio.Semaphore(self.at_once)

        async def one(probe: Probe) -> tuple[Probe, Rollout]:
            async with slots:
                return probe, await run_rollout(self.host, example, probe.model(), self.settings)

        return await asyncio.gather(*map(one, probes))

    async def _play_group(self, example: Example, probes: Sequence[Probe]) -> list[tuple[Probe, Rollout]]:
        siblings = [*probes, Probe("sibling", REFUSAL)] if len(probes) == 1 else probes
        model = _ProbeModel(siblings)
        rollouts = await run_group(self.host, example, model, self.settings, samples=range(len(siblings)))
        played = [(model.probe_of(rollout), rollout) for rollout in rollouts]
        return [(probe, rollout) for probe, rollout in played if probe]
