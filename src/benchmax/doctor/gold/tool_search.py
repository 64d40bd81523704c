"""Searches for solutions by tool calls, for environments that show none.

Four ways are tried. *Looking up*: call tools with values of the prompt and of earlier results until a result contains
the truth. *Querying*: the same with SQL. *Doing*: a call for each entry of a list of the row, or a list of calls which
is extended by whatever raises the reward. *Quoting*: repeat what a tool returned. What solved one row is tried first on
the next, so that a row takes a handful of calls after the first few.

A call with a number that the model cannot know would teach it to guess. Between bounds that the prompt names, the
number is approached by halves instead, which a model can do from the tool's answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from time import perf_counter
from typing import TypeAlias

from benchmax.doctor.gold.answer_formats import PLAIN, Form, asked_forms
from benchmax.doctor.gold.call_values import (
    USUAL_NUMBER,
    Arguments,
    Value,
    arguments,
    calls_in_row,
    one_for_each,
    values,
    values_in_json,
)
from benchmax.doctor.gold.ground_truths import question
from benchmax.doctor.gold.sql_queries import find_query, statement_parameter, tables
from benchmax.doctor.probe_answers import tells
from benchmax.doctor.probe_player import PlayedAnswer, Probe, ProbePlayer
from benchmax.doctor.tool_arguments import properties_of
from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import Example, ToolCall, ToolDefinition
from benchmax.metrics import is_full, pays_more
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.play import new_rollout, open_rollout
from benchmax.rollouts.toolbox import BadToolCall, Toolbox, as_result

DEPTH = 3
"""Look-ups in a row."""
BEAM = 6
MOST_ACTIONS = 6
"""Calls in a row that change something."""
MOST_REACTIONS = 12
"""Calls with a value of an earlier result, after each program."""
MOST_REPEATS = 12
"""Times the same call is made, where nothing says how often."""
MOST_PLAYS = 1500
"""Rollouts for one example."""
WIDE_BEAM = 36
"""First calls that are followed by a second one, where no single call earns anything."""
QUOTED_RESULTS, QUOTED_VALUES, QUOTED_FORMS = 40, 4, 2
"""Results that are quoted, values in one of them, and forms that the prompt asks for."""
_WHOLE = re.compile(r"(?<![\w.])-?\d+\b(?!\.\d)")
_BETWEEN = re.compile(r"\b(?:between|from)\s+(-?\d+)\s+(?:and|to)\s+(-?\d+)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """A call, and the places where its arguments were found."""

    call: ToolCall
    places: tuple[str, ...]

    @property
    def pattern(self) -> tuple[str, ...]:
        """What this step has in common with the same step on another row."""
        return (self.call.name, *self.places)


@dataclass(slots=True)
class Program:
    """Calls in a row, and their results."""

    steps: list[Step] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    answer: str = ""
    """What is said at the end, where that is no text known before the calls."""

    @property
    def calls(self) -> list[ToolCall]:
        return [step.call for step in self.steps]


@dataclass(frozen=True, slots=True)
class Goal:
    """A row to solve: what `answer`, or what a tool said, earns after the right calls."""

    example: Example
    truth: str | None
    answer: str
    floor: float
    """What nonsense earns."""
    without_calls: float
    """What the answer earns without calls; where none is known, the floor, and at least 0."""


Solution: TypeAlias = tuple[Program, float]
"""Calls after which the answer earns, and what it earns."""


class ProgramSearch:
    """Searches one environment's rows, one after the other, and reuses what solved earlier ones."""

    def __init__(self, player: ProbePlayer, tools: Sequence[ToolDefinition], seconds: float) -> None:
        self.player, self.tools = player, list(tools)
        self.toolbox = Toolbox(tools)
        self._seconds = seconds
        """Left for searching."""
        self._began = perf_counter()
        self.solved_with: Counter[tuple[int, tuple[str, ...]]] = Counter()
        self.last = ""
        """How the last row was solved."""
        self._done: tuple[list[tuple[str, ...]], float] = ([], 0.0)
        """The pattern of each call that solved the last row by doing, and what it earned."""

    @property
    def over(self) -> bool:
        return perf_counter() - self._began > self._seconds

    async def solve(self, goal: Goal) -> tuple[list[ToolCall], str, float] | None:
        """The calls, the text that earns after them, and what it earns; None when they help in none of the ways."""
        ways = {"look up": self._look_up, "query": self._query, "do": self._do, "quote": self._quote}
        self._began = perf_counter()
        try:
            # The way that solved the last row goes first.
            for name in sorted(ways, key=lambda name: name != self.last):
                found = None if self.over else await ways[name](goal)
                if found is not None:
                    program, reward = found
                    self.last = name
                    self.solved_with.update((at, step.pattern) for at, step in enumerate(program.steps))
                    return program.calls, program.answer or goal.answer, reward
            return None
        finally:
            self._seconds -= perf_counter() - self._began

    # Looking up

    async def _look_up(self, goal: Goal) -> Solution | None:
        # First the calls that solved earlier rows; if those do not lead to it, all there are.
        eagerness = (True, False) if self.solved_with else (False,)
        for eager in eagerness if goal.truth else ():
            if (found := await self._follow(goal, eager)) is not None:
                return await self._page_by_page(goal, found)
        return None

    async def _page_by_page(self, goal: Goal, found: Solution) -> Solution:
        """The same with the calls before one that merely counts: who does not know the page begins with the first."""
        program, reward = found
        *before, last = program.steps
        given = json.loads(last.call.arguments)
        counted = [name for name, place in zip(given, last.places, strict=True) if place == USUAL_NUMBER]
        if len(counted) != 1 or given[counted[0]] < 2:
            return found
        pages = [{**given, counted[0]: at} for at in range(1, given[counted[0]] + 1)]
        steps = [Step(ToolCall(last.call.name, json.dumps(page, ensure_ascii=False)), last.places) for page in pages]
        return await self._solves(goal, Program([*before, *steps], program.results), reward) or found

    async def _follow(self, goal: Goal, eager: bool) -> Solution | None:
        frontier = [Program()]
        seen: set[str] = set()
        for _ in range(DEPTH):
            wider: list[Program] = []
            for program in frontier:
                for longer in await self._extend(goal.example, program, goal.truth or "", eager):
                    has_truth = tells(longer.results[-1], goal.truth or "")
                    if has_truth and (found := await self._solves(goal, longer)) is not None:
                        return found
                    if longer.results[-1] not in seen:
                        seen.add(longer.results[-1])
                        wider.append(longer)
                if self.over:
                    return None
            wider.sort(key=lambda program: -self.solved_with[len(program.steps) - 1, program.steps[-1].pattern])
            frontier = wider[:BEAM]
        return None

    async def _extend(self, example: Example, program: Program, truth: str, eager: bool) -> list[Program]:
        """Every call that might follow, made in one rollout after the calls of the program."""
        steps = self._steps(example, program, truth, eager)
        found: list[Program] = []
        rollout = new_rollout(self.player.host, example, ScriptedModel(""))
        async with open_rollout(self.player.host, rollout, self.player.settings) as ready:
            for call in program.calls if ready else ():
                await self._call(rollout.id, call)
            for step in steps if ready else ():
                if result := await self._call(rollout.id, step.call):
                    found.append(Program([*program.steps, step], [*program.results, result]))
        return found

    async def _call(self, rollout_id: str, call: ToolCall) -> str | None:
        """The tool's result; None when it fails."""
        host = self.player.host
        try:
            given = self.toolbox.arguments(call)
            running = host.start("run_tool", (rollout_id, call.name), given, call.name)
            result = as_result(await host.outcome(running, self.player.settings.tool_seconds))
        except (BadToolCall, Exception):
            return None
        return None if result.is_error or result.text.startswith("Error") else result.text

    def _steps(self, example: Example, program: Program, truth: str, eager: bool) -> list[Step]:
        """Calls that might follow, those that solved earlier rows first; the truth itself is not an argument."""
        found = [value for value in values(example, program.results) if str(value.value) != truth]
        steps = [_step(tool, made) for tool in self.tools for made in arguments(tool, found)]
        at = len(program.steps)
        steps.sort(key=lambda step: -self.solved_with[at, step.pattern])
        known = [step for step in steps if self.solved_with[at, step.pattern]]
        return known[:BEAM] if eager else steps

    # Asking tables

    async def _query(self, goal: Goal) -> Solution | None:
        """A statement for a tool that takes SQL."""
        host = self.player.host
        for tool in self.tools:
            name = statement_parameter(tool)
            shapes = tables(f"{self._shown(goal.example)}\n{tool.description}") if name else []
            if not goal.truth or not name or not shapes:
                continue
            rollout = new_rollout(host, goal.example, ScriptedModel(""))
            async with open_rollout(host, rollout, self.player.settings) as ready:
                ask = partial(self._ask, rollout.id, tool.name, name)
                known = [value.value for value in values(goal.example, []) if not value.place.startswith("column")]
                statement = await find_query(ask, shapes, known, goal.truth) if ready else None
            if statement is not None:
                step = _step(tool, Arguments({name: statement}, ("query",)))
                if (found := await self._solves(goal, Program([step]))) is not None:
                    return found
        return None

    async def _ask(self, rollout_id: str, tool: str, parameter: str, statement: str) -> str | None:
        call = ToolCall(tool, json.dumps({parameter: statement}))
        return None if self.over else await self._call(rollout_id, call)

    # Doing

    async def _do(self, goal: Goal) -> Solution | None:
        """Calls that change something, none of which the model could only guess where there is another way."""
        found = await self._again(goal) or await self._for_each(goal) or await self._raise(goal)
        if found is None:
            return None
        self._done = [step.pattern for step in found[0].steps], found[1]
        halves = self._by_halves(goal.example, found[0])
        return found if halves is None else await self._solves(goal, halves, found[1]) or found

    async def _again(self, goal: Goal) -> Solution | None:
        """The calls that solved the last row, with this one's values in the same places."""
        patterns, earned = self._done
        steps = {step.pattern: step for step in self._actions(goal.example, Program())}
        program = Program([steps[pattern] for pattern in patterns if pattern in steps])
        whole = patterns and len(program.steps) == len(patterns)
        return await self._solves(goal, program, earned) if whole else None

    async def _for_each(self, goal: Goal) -> Solution | None:
        """The calls that the row holds, or one with each entry of a list of it; then a tool to end, if there is one."""
        example = goal.example
        without_parameters = [t for t in self.tools if isinstance(t.input_schema, Mapping) and not properties_of(t)]
        last = [_step(tool, Arguments({}, ())) for tool in without_parameters]
        lists = [[_step(*each) for each in made] for made in calls_in_row(self.tools, example)]
        lists += [[_step(tool, made) for made in each] for tool in self.tools for each in one_for_each(tool, example)]
        programs = [Program([*steps, *end]) for steps in lists for end in ([], *([step] for step in last))]
        best = max(await self._earning(goal, programs), key=lambda each: each[1], default=None)
        return best if best is not None and pays_more(best[1], goal.without_calls) else None

    def _by_halves(self, example: Example, program: Program) -> Program | None:
        """The way to a hidden number by the middle of what is left; None where the call holds no such number."""
        (step, *others), shown = program.steps, self._shown(example)
        told = [int(number) for number in _WHOLE.findall(shown)]
        bounds = [int(number) for pair in _BETWEEN.findall(shown) for number in pair] or told
        given = json.loads(step.call.arguments)
        hidden = [
            (name, value)
            for (name, value), place in zip(given.items(), step.places, strict=True)
            if type(value) is int and place.startswith("column")
        ]
        if others or len(hidden) != 1 or not bounds:
            return None
        (name, secret), low, high = hidden[0], min(bounds), max(bounds)
        if secret in told or not low < secret < high:
            return None
        tried = [(low + high) // 2]
        while tried[-1] != secret:
            low, high = (tried[-1] + 1, high) if tried[-1] < secret else (low, tried[-1] - 1)
            tried.append((low + high) // 2)
        calls = [ToolCall(step.call.name, json.dumps({**given, name: at})) for at in tried]
        return Program([Step(call, step.places) for call in calls])

    async def _raise(self, goal: Goal) -> Solution | None:
        """Extend the best programs while the reward rises; where a single call does not help, repeat it."""
        best: Solution | None = None
        least = goal.without_calls  # a call that changes nothing is not kept
        beam: list[Solution] = [(Program(), least)]
        plays = 0
        for _ in range(MOST_ACTIONS):
            tried: list[Solution] = []
            most = MOST_PLAYS // max(len(beam), MOST_ACTIONS)
            # What was just learned is used first; without it, most calls were tried before.
            for steps_after, count in ((self._reactions, MOST_REACTIONS), (self._actions, most)):
                longer = [
                    Program([*program.steps, step])
                    for program, _ in beam
                    for step in steps_after(goal.example, program)[:count]
                ]
                tried += await self._earning(goal, longer)
                plays += len(longer)
                tried.sort(key=lambda each: -each[1])
                if self.over or (tried and pays_more(tried[0][1], best[1] if best else least)):
                    break
            if tried and pays_more(tried[0][1], best[1] if best else least):
                best = tried[0]
            elif best is not None:
                return best
            if (best and is_full(best[1])) or plays > MOST_PLAYS or self.over:
                break
            beam = tried[: WIDE_BEAM if best is None and len(beam) == 1 else BEAM]
        return best or await self._repeat(goal, least)

    def _actions(self, example: Example, program: Program) -> list[Step]:
        """Calls that might help, of each tool in turn, those that solved earlier rows first."""
        return self._sorted_steps(values(example, []), len(program.steps))

    def _reactions(self, example: Example, program: Program) -> list[Step]:
        """The same with a value of an earlier result."""
        steps = self._sorted_steps(values(example, program.results), len(program.steps)) if program.results else []
        return [step for step in steps if any("result" in place for place in step.places)]

    def _sorted_steps(self, found: Sequence[Value], at: int) -> list[Step]:
        by_tool = ([_step(tool, made) for made in arguments(tool, found)] for tool in self.tools)
        steps = [step for likely in zip_longest(*by_tool) for step in likely if step is not None]
        steps.sort(key=lambda step: -self.solved_with[at, step.pattern])
        return steps

    async def _repeat(self, goal: Goal, least: float) -> Solution | None:
        for step in self._actions(goal.example, Program())[:BEAM]:
            paid = await self._earning(goal, [Program([step] * times) for times in range(2, MOST_REPEATS + 1)])
            best = max(paid, key=lambda each: each[1], default=None)  # of equal ones the shortest
            if best is not None and pays_more(best[1], least):
                return best
        return None

    # Quoting

    async def _quote(self, goal: Goal) -> Solution | None:
        """A call whose result, or a value in it, is the answer, though no column holds it."""
        if self.solved_with and self.last != "quote":
            return None  # rows of one environment are solved in one way
        found = {program.results[-1]: program for program in await self._extend(goal.example, Program(), "", False)}
        forms = [PLAIN, *asked_forms(self._shown(goal.example))[:QUOTED_FORMS]]
        quotes = [
            (program, text)
            for program in list(found.values())[:QUOTED_RESULTS]
            for text in _quotes(program.results[-1], forms)
        ]
        probes = [Probe(str(at), text, ((program.steps[-1].call,),)) for at, (program, text) in enumerate(quotes)]
        played = await self.player.play(goal.example, probes) if probes else []
        paid = [(each.total, each) for each in played if each.total is not None]
        reward, best = max(paid, key=lambda each: each[0], default=(goal.without_calls, None))
        if best is None or not pays_more(reward, goal.without_calls):
            return None
        program = quotes[int(best.kind)][0]
        return Program(program.steps, program.results, best.text), reward

    # Playing

    def _shown(self, example: Example) -> str:
        """What the model is shown before it answers."""
        return f"{self.player.host.env.system_prompt}\n{question(example)}"

    async def _solves(self, goal: Goal, program: Program, least: float | None = None) -> Solution | None:
        """The program and what the answer earns after it, where that is more than nonsense earns and at least `least`,
        by default what the answer earns without calls."""
        least = goal.without_calls if least is None else least
        for _, reward in await self._earning(goal, [program]):
            if pays_more(reward, goal.floor) and not pays_more(least, reward):
                return program, reward
        return None

    async def _earning(self, goal: Goal, programs: Sequence[Program]) -> list[Solution]:
        """The programs after which the answer is scored, each with the tools' results, and what the answer earns."""
        probes = [
            Probe(str(at), goal.answer, tuple((call,) for call in each.calls)) for at, each in enumerate(programs)
        ]
        played = {each.kind: each for each in await self.player.play(goal.example, probes)} if probes else {}
        return [
            (Program(program.steps, _tool_results(done)), done.total)
            for at, program in enumerate(programs)
            if (done := played.get(str(at))) is not None and done.total is not None
        ]


def _tool_results(played: PlayedAnswer) -> list[str]:
    return [content_text(each.get("content")) for each in played.rollout.completion if each["role"] == "tool"]


def _quotes(result: str, forms: Sequence[Form]) -> list[str]:
    """What may be quoted of a result: all of it, or one of the values in it."""
    inside = [str(value.value) for value in values_in_json("result", result) if isinstance(value.value, str | int)]
    return [form.write(text.strip()) for text in (result, *inside[:QUOTED_VALUES]) for form in forms]


def _step(tool: ToolDefinition, made: Arguments) -> Step:
    return Step(ToolCall(tool.name, json.dumps(made.values, ensure_ascii=False)), made.places)
