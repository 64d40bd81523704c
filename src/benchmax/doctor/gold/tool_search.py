"""Searches for solutions by tool calls, for environments that show none.

Four ways are tried. *Looking up*: call tools with values of the prompt and of earlier results until a result contains
the truth. *Querying*: the same with SQL. *Doing*: a call for each entry of a list of the row, or a list of calls which
is extended by whatever raises the reward. *Quoting*: say what a tool has told. What solved one row is tried first on
the next, so that after the first few a row takes a handful of calls.

A call with a number that the model cannot know would teach it to guess. Between bounds that the prompt names, the
number is approached by halves instead, as one who listens to the tool's answers does.
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

from benchmax.doctor.gold.call_values import (
    USUAL_NUMBER,
    Arguments,
    Value,
    arguments,
    one_for_each,
    told_calls,
    values,
    values_in_json,
)
from benchmax.doctor.gold.forms import PLAIN, Form, asked_forms
from benchmax.doctor.gold.sql_queries import find_query, statement_parameter, tables
from benchmax.doctor.gold.truths import question
from benchmax.doctor.probe_answers import tells
from benchmax.doctor.probe_player import PlayedAnswer, Probe, ProbePlayer
from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import Example, ToolCall, ToolDefinition
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.play import new_rollout, open_rollout
from benchmax.rollouts.toolbox import BadToolCall, Toolbox, as_result

DEPTH = 3
"""Look-ups in a row."""
BEAM = 6
ACTIONS = 6
"""Calls in a row that change something."""
REACTIONS = 12
"""Calls with what an earlier one has told, after each path."""
REPEATS = 12
"""Times the same call is made, where nothing tells how often."""
PLAYS = 1500
"""Rollouts for one example."""
WIDE = 36
"""First calls that are followed by a second one, where no single call earns anything."""
QUOTED, QUOTED_VALUES, QUOTED_FORMS = 40, 4, 2
"""Results that are quoted, values in one of them, and forms that the prompt asks for."""
ENOUGH = 1 - 1e-9
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
class Path:
    """Calls in a row, and their results."""

    steps: list[Step] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    answer: str = ""
    """What is said at the end, where that is no text known before the calls."""

    @property
    def calls(self) -> list[ToolCall]:
        return [step.call for step in self.steps]


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

    async def solve(
        self, example: Example, truth: str | None, answer: str, least: float
    ) -> tuple[list[ToolCall], str, float] | None:
        """The calls after which `answer`, or what a tool said, earns more than `least`, that text and what it earns."""
        ways = {"look up": self._look_up, "query": self._query, "do": self._do, "quote": self._quote}
        self._began = perf_counter()
        try:
            # The way that solved the last row goes first.
            for name in sorted(ways, key=lambda name: name != self.last):
                found = None if self.over else await ways[name](example, truth, answer, least)
                if found is not None:
                    path, reward = found
                    self.last = name
                    self.solved_with.update((at, step.pattern) for at, step in enumerate(path.steps))
                    return path.calls, path.answer or answer, reward
            return None
        finally:
            self._seconds -= perf_counter() - self._began

    # Looking up

    async def _look_up(
        self, example: Example, truth: str | None, answer: str, least: float
    ) -> tuple[Path, float] | None:
        if not truth:
            return None
        # First the calls that solved earlier rows; if those do not lead to it, all there are.
        for eager in (True, False) if self.solved_with else (False,):
            if (found := await self._follow(example, truth, answer, least, eager)) is not None:
                return await self._page_by_page(example, answer, found)
        return None

    async def _page_by_page(self, example: Example, answer: str, found: tuple[Path, float]) -> tuple[Path, float]:
        """The same with the calls before one that merely counts: who does not know the page begins with the first."""
        path, reward = found
        *before, last = path.steps
        given = json.loads(last.call.arguments)
        counted = [name for name, place in zip(given, last.places, strict=True) if place == USUAL_NUMBER]
        if len(counted) != 1 or given[counted[0]] < 2:
            return found
        pages = [{**given, counted[0]: at} for at in range(1, given[counted[0]] + 1)]
        steps = [Step(ToolCall(last.call.name, json.dumps(page, ensure_ascii=False)), last.places) for page in pages]
        whole = Path([*before, *steps], path.results)
        earned = await self._earns(example, whole.calls, answer)
        return (whole, earned) if earned is not None and earned >= reward - 1e-9 else found

    async def _follow(
        self, example: Example, truth: str, answer: str, least: float, eager: bool
    ) -> tuple[Path, float] | None:
        frontier = [Path()]
        seen: set[str] = set()
        for _ in range(DEPTH):
            wider: list[Path] = []
            for path in frontier:
                for longer in await self._extend(example, path, truth, eager):
                    if tells(longer.results[-1], truth):
                        reward = await self._earns(example, longer.calls, answer)
                        if reward is not None and reward > least:
                            return longer, reward
                    if longer.results[-1] not in seen:
                        seen.add(longer.results[-1])
                        wider.append(longer)
                if self.over:
                    return None
            wider.sort(key=lambda path: -self.solved_with[len(path.steps) - 1, path.steps[-1].pattern])
            frontier = wider[:BEAM]
        return None

    async def _extend(self, example: Example, path: Path, truth: str, eager: bool) -> list[Path]:
        """Every call that might follow, made in one rollout after the calls of the path."""
        steps = self._steps(example, path, truth, eager)
        found: list[Path] = []
        rollout = new_rollout(self.player.host, example, ScriptedModel(""))
        async with open_rollout(self.player.host, rollout, self.player.settings) as ready:
            for call in path.calls if ready else ():
                await self._call(rollout.id, call)
            for step in steps if ready else ():
                if result := await self._call(rollout.id, step.call):
                    found.append(Path([*path.steps, step], [*path.results, result]))
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

    def _steps(self, example: Example, path: Path, truth: str, eager: bool) -> list[Step]:
        """Calls that might follow, those that solved earlier rows first; the truth itself is not an argument."""
        found = [value for value in values(example, path.results) if str(value.value) != truth]
        steps = [_step(tool, made) for tool in self.tools for made in arguments(tool, found)]
        at = len(path.steps)
        steps.sort(key=lambda step: -self.solved_with[at, step.pattern])
        known = [step for step in steps if self.solved_with[at, step.pattern]]
        return known[:BEAM] if eager else steps

    # Asking tables

    async def _query(self, example: Example, truth: str | None, answer: str, least: float) -> tuple[Path, float] | None:
        """A statement for a tool that takes SQL."""
        host = self.player.host
        for tool in self.tools:
            name = statement_parameter(tool)
            shapes = tables(f"{host.env.system_prompt}\n{question(example)}\n{tool.description}") if name else []
            if not truth or not name or not shapes:
                continue
            rollout = new_rollout(host, example, ScriptedModel(""))
            async with open_rollout(host, rollout, self.player.settings) as ready:
                ask = partial(self._ask, rollout.id, tool.name, name)
                known = [value.value for value in values(example, []) if not value.place.startswith("column")]
                statement = await find_query(ask, shapes, known, truth) if ready else None
            if statement is not None:
                step = Step(ToolCall(tool.name, json.dumps({name: statement}, ensure_ascii=False)), ("query",))
                reward = await self._earns(example, [step.call], answer)
                if reward is not None and reward > least:
                    return Path([step]), reward
        return None

    async def _ask(self, rollout_id: str, tool: str, parameter: str, statement: str) -> str | None:
        call = ToolCall(tool, json.dumps({parameter: statement}))
        return None if self.over else await self._call(rollout_id, call)

    # Doing

    async def _do(self, example: Example, truth: str | None, answer: str, least: float) -> tuple[Path, float] | None:
        """Calls that change something, none of which the model could only guess where there is another way."""
        found = await self._again(example, answer) or await self._for_each(example, answer, least)
        found = found or await self._raise(example, answer, least)
        if found is not None:
            self._done = [step.pattern for step in found[0].steps], found[1]
        if found is None or (halves := self._by_halves(example, found[0])) is None:
            return found
        reward = await self._earns(example, halves.calls, answer)
        return (halves, reward) if reward is not None and reward >= found[1] - 1e-9 else found

    async def _again(self, example: Example, answer: str) -> tuple[Path, float] | None:
        """The calls that solved the last row, with this one's values in the same places."""
        patterns, earned = self._done
        steps = {step.pattern: step for step in self._actions(example, Path())}
        path = Path([steps[pattern] for pattern in patterns if pattern in steps])
        if not patterns or len(path.steps) < len(patterns):
            return None
        reward = await self._earns(example, path.calls, answer)
        return (path, reward) if reward is not None and reward >= earned - 1e-9 else None

    async def _for_each(self, example: Example, answer: str, least: float) -> tuple[Path, float] | None:
        """The calls that the row holds, or one with each entry of a list of it; then a tool to end, if there is one."""
        last = [Step(ToolCall(tool.name, "{}"), ()) for tool in self.tools if not _parameters(tool)]
        lists = [[_step(*each) for each in told] for told in told_calls(self.tools, example)]
        lists += [[_step(tool, made) for made in each] for tool in self.tools for each in one_for_each(tool, example)]
        paths = [Path([*steps, *end]) for steps in lists for end in ([], *([step] for step in last))]
        earned = await self._earn_all(example, [path.calls for path in paths], answer)
        paid = [(path, reward) for path, reward in zip(paths, earned, strict=True) if reward is not None]
        best = max(paid, key=lambda each: each[1], default=None)
        return best if best is not None and best[1] > least + 4e-9 else None

    def _by_halves(self, example: Example, path: Path) -> Path | None:
        """The way to a hidden number by the middle of what is left; None where the call holds no such number."""
        (step, *others), shown = path.steps, f"{self.player.host.env.system_prompt}\n{question(example)}"
        between = [int(number) for pair in _BETWEEN.findall(shown) for number in pair]
        bounds = between or [int(number) for number in _WHOLE.findall(shown)]
        given = json.loads(step.call.arguments)
        hidden = [
            (name, value)
            for (name, value), place in zip(given.items(), step.places, strict=True)
            if type(value) is int and place.startswith("column")
        ]
        if others or len(hidden) != 1 or not bounds:
            return None
        (name, secret), low, high = hidden[0], min(bounds), max(bounds)
        if secret in bounds or not low < secret < high:
            return None
        tried = [(low + high) // 2]
        while tried[-1] != secret:
            low, high = (tried[-1] + 1, high) if tried[-1] < secret else (low, tried[-1] - 1)
            tried.append((low + high) // 2)
        calls = [ToolCall(step.call.name, json.dumps({**given, name: at})) for at in tried]
        return Path([Step(call, step.places) for call in calls])

    async def _raise(self, example: Example, answer: str, least: float) -> tuple[Path, float] | None:
        """Extend the best paths while the reward rises; where a single call does not help, repeat it."""
        best: tuple[Path, float] | None = None
        least += 4e-9  # a call that changes nothing is not kept
        beam: list[tuple[Path, float]] = [(Path(), least)]
        plays = 0
        for _ in range(ACTIONS):
            tried: list[tuple[Path, float]] = []
            for path, _ in beam:
                steps = self._actions(example, path)[: PLAYS // len(beam)][: PLAYS // ACTIONS]
                steps += self._reactions(example, path)[:REACTIONS]
                played = await self._play_all(example, [[*path.calls, step.call] for step in steps], answer)
                for step, done in zip(steps, played, strict=True):
                    if done is not None and done.total is not None:
                        tried.append((Path([*path.steps, step], _told_by_tools(done)), done.total))
                plays += len(steps)
            tried.sort(key=lambda each: -each[1])
            if tried and tried[0][1] > (best[1] if best else least) + 1e-9:
                best = tried[0]
            elif best is not None:
                return best
            if best and best[1] >= ENOUGH:
                return best
            if plays > PLAYS or self.over:
                break
            beam = tried[: WIDE if best is None and len(beam) == 1 else BEAM]
        return best or await self._repeat(example, answer, least)

    def _actions(self, example: Example, path: Path) -> list[Step]:
        """Calls that might help, of each tool in turn, those that solved earlier rows first."""
        return self._sorted_steps(values(example, []), len(path.steps))

    def _reactions(self, example: Example, path: Path) -> list[Step]:
        """The same with something that an earlier call has told."""
        steps = self._sorted_steps(values(example, path.results), len(path.steps)) if path.results else []
        return [step for step in steps if any("result" in place for place in step.places)]

    def _sorted_steps(self, found: Sequence[Value], at: int) -> list[Step]:
        by_tool = ([_step(tool, made) for made in arguments(tool, found)] for tool in self.tools)
        steps = [step for likely in zip_longest(*by_tool) for step in likely if step is not None]
        steps.sort(key=lambda step: -self.solved_with[at, step.pattern])
        return steps

    async def _repeat(self, example: Example, answer: str, least: float) -> tuple[Path, float] | None:
        for step in self._actions(example, Path())[:BEAM]:
            many = [[step.call] * times for times in range(2, REPEATS + 1)]
            earned = await self._earn_all(example, many, answer)
            paid = [(reward, times) for times, reward in enumerate(earned, 2) if reward is not None and reward > least]
            if paid:
                reward, times = max(paid, key=lambda each: (each[0], -each[1]))
                return Path([step] * times), reward
        return None

    # Quoting

    async def _quote(self, example: Example, truth: str | None, answer: str, least: float) -> tuple[Path, float] | None:
        """A call whose result, or a value in it, is the answer, though no column holds it."""
        if self.solved_with and self.last != "quote":
            return None  # rows of one environment are solved in one way
        found = {path.results[-1]: path for path in await self._extend(example, Path(), "", False)}
        forms = [PLAIN, *asked_forms(f"{self.player.host.env.system_prompt}\n{question(example)}")[:QUOTED_FORMS]]
        told = [(path, text) for path in list(found.values())[:QUOTED] for text in _sayings(path.results[-1], forms)]
        probes = [Probe(str(at), text, ((path.steps[-1].call,),)) for at, (path, text) in enumerate(told)]
        played = await self.player.play(example, probes) if probes else []
        best = max(
            (each for each in played if each.total is not None), key=lambda each: each.total or 0.0, default=None
        )
        if best is None or best.total is None or best.total <= least + 4e-9:
            return None
        path = told[int(best.kind)][0]
        return Path(path.steps, path.results, best.text), best.total

    # Playing

    async def _earns(self, example: Example, calls: Sequence[ToolCall], answer: str) -> float | None:
        return (await self._earn_all(example, [calls], answer))[0]

    async def _earn_all(self, example: Example, many: Sequence[Sequence[ToolCall]], answer: str) -> list[float | None]:
        """What the answer earns after each list of calls."""
        played = await self._play_all(example, many, answer)
        return [None if each is None else each.total for each in played]

    async def _play_all(
        self, example: Example, many: Sequence[Sequence[ToolCall]], answer: str
    ) -> list[PlayedAnswer | None]:
        probes = [Probe(str(at), answer, tuple((call,) for call in calls)) for at, calls in enumerate(many)]
        played = {each.kind: each for each in await self.player.play(example, probes)} if probes else {}
        return [played.get(str(at)) for at in range(len(many))]


def _told_by_tools(played: PlayedAnswer) -> list[str]:
    return [content_text(each.get("content")) for each in played.rollout.completion if each["role"] == "tool"]


def _sayings(result: str, forms: Sequence[Form]) -> list[str]:
    """What may be quoted of a result: all of it, or one of the values in it."""
    inside = [str(value.value) for value in values_in_json("result", result) if isinstance(value.value, str | int)]
    return [form.write(text.strip()) for text in (result, *inside[:QUOTED_VALUES]) for form in forms]


def _parameters(tool: ToolDefinition) -> bool:
    return bool(tool.input_schema.get("properties")) if isinstance(tool.input_schema, Mapping) else True


def _step(tool: ToolDefinition, made: Arguments) -> Step:
    return Step(ToolCall(tool.name, json.dumps(made.values, ensure_ascii=False)), made.places)
