"""Finds which reading of the task, in which form, earns most, by playing them on a few examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from benchmax.doctor.gold.answer_formats import PLAIN, USUAL, Form, all_forms, asked_forms
from benchmax.doctor.gold.ground_truths import columns, instructions, is_likely, short_values, truth_text, truths
from benchmax.doctor.probe_answers import GARBAGE, REFUSAL
from benchmax.doctor.probe_player import PlayedAnswer, Probe, ProbePlayer, tool_turns
from benchmax.envs.base_env import overrides
from benchmax.envs.demonstration import Turn
from benchmax.envs.types import Example, ToolCall, ToolDefinition
from benchmax.errors import EnvDefinitionError, describe_failure
from benchmax.metrics import is_full, pays_more

OWN_GOLD, FOUND_CALLS = "gold_completion", "tool calls that were found"
SCOUTED_EXAMPLES = 3
"""Examples on which the ways to write an answer are compared."""
FIRST_TRUTHS = 6
"""Readings tried first, with the prompt's templates; the others only when none of these earns a full reward."""
MOST_TEXTS = 400
"""Answers tried on one example."""
MOST_SIBLINGS = 24
"""The same, where the reward compares all of them."""
FINALISTS = 6

LEAST_TRUSTED = 0.5
"""The reward from which on an answer that was guessed from the columns is called a good one."""

CONSTANT_ANSWERS = {"a refusal": REFUSAL}
"""Answers that are the same for every row, and right for tasks that ask for them."""

OwnGold = Callable[[Example], str | None]


@dataclass(frozen=True, slots=True)
class Way:
    """How to write the answer of any example."""

    label: str
    """The reading of the task, or the environment's own gold_completion."""
    form: Form = PLAIN
    with_tools: bool = False
    """Call every tool once before answering."""

    @property
    def guessed(self) -> bool:
        """Whether it was made from columns that are not named like an answer."""
        from_columns = self.label not in (OWN_GOLD, FOUND_CALLS, *CONSTANT_ANSWERS)
        return from_columns and not any(map(is_likely, self.label.split()))

    @property
    def name(self) -> str:
        name = self.label if self.form is PLAIN or self.label == OWN_GOLD else f"{self.label}, {self.form.name}"
        return f"{name}, after calling the tools" if self.with_tools else name


@dataclass(slots=True)
class Gold:
    """What was found."""

    ways: list[Way] = field(default_factory=list)
    """Those tried on every example, the best first."""
    earned: dict[Way, float] = field(default_factory=dict)
    """The mean reward of each on the examples it was tried on."""
    floor: float = 0.0
    """What answers without content earn."""
    asked: list[Form] = field(default_factory=list)
    """The forms the prompt asks for."""
    tried: int = 0
    """Answers played."""
    system_prompt: str = ""
    error: str = ""
    """What gold_completion or gold_tool_calls raised."""
    raised_in: str = ""
    """Which of the two it was."""
    own: OwnGold = lambda example: None
    calls_of: Callable[[Example], Sequence[ToolCall]] = lambda example: ()
    tools: Sequence[ToolDefinition] = ()
    first: dict[str, PlayedAnswer] = field(default_factory=dict)
    """The best answer to an example when it was played for the first time, without tools."""
    found: dict[str, Sequence[Turn]] = field(default_factory=dict)
    """Solutions of single examples by tool calls, where no way of writing the answer earns."""

    @property
    def best(self) -> Way | None:
        return self.ways[0] if self.ways else None

    @property
    def called(self) -> str:
        """What findings call the best answer: what was guessed is not the author's."""
        return "the best answer made from the columns" if self.best and self.best.guessed else "the gold answer"

    @property
    def works(self) -> bool:
        """Whether the best way earns more than nonsense."""
        return self.best is not None and pays_more(self.earned[self.best], self.floor)

    @property
    def trusted(self) -> bool:
        """Whether the best way works, and is no guess after tool calls that happened to help a little."""
        if self.best is None or not self.works:
            return False
        return not (self.best.guessed and self.best.with_tools) or self.earned[self.best] >= LEAST_TRUSTED

    def text(self, example: Example, way: Way | None = None) -> str | None:
        """The answer to an example, written the best way unless another is given."""
        way = way or self.best
        if way is None:
            return None
        if way.label in CONSTANT_ANSWERS:
            return CONSTANT_ANSWERS[way.label]
        if way.label == FOUND_CALLS:
            return str(self.found[example["id"]][-1]) if example["id"] in self.found else None
        if way.label == OWN_GOLD:
            return self.own(example)
        truth = next((truth.text for truth in truths(example, self.system_prompt) if truth.label == way.label), None)
        return None if truth is None else way.form.write(truth)

    def learn(self, example: Example, turns: Sequence[Turn], reward: float) -> str:
        """Record a solution of this example; returns its last turn."""
        self.found[example["id"]] = turns
        self.ways = [Way(FOUND_CALLS)]
        self.earned[Way(FOUND_CALLS)] = max(reward, self.earned.get(Way(FOUND_CALLS), reward))
        return str(turns[-1])

    def truth(self, example: Example) -> str | None:
        """The answer without its form."""
        if self.best is None or self.best.label in CONSTANT_ANSWERS or self.best.label == FOUND_CALLS:
            return None
        if self.best.label != OWN_GOLD:
            return self.text(example, Way(self.best.label))
        own, truth = self.own(example), truth_text(example)
        return truth if own and truth and truth in own else None

    def is_bare(self, example: Example) -> bool:
        """Whether the answer without its form is a single value of the row, and not joined from several."""
        truth = (self.truth(example) or "").lower()
        return any(str(value).lower() == truth for _, value in columns(example))

    def probe(self, example: Example, text: str, way: Way | None = None, kind: str = "gold") -> Probe:
        """The answer to play, after the tool calls it needs."""
        way = way or self.best
        turns: tuple[tuple[ToolCall, ...], ...] = tuple((call,) for call in self.calls_of(example))
        turns = turns or tuple(turn for turn in self.found.get(example["id"], ()) if isinstance(turn, tuple))
        if not turns and way is not None and way.with_tools:
            turns = tool_turns(self.tools)
        return Probe(kind, text, turns)


class GoldFinder:
    """Tries answers on an environment."""

    def __init__(self, player: ProbePlayer, tools: Sequence[ToolDefinition] = (), seconds: float = 40.0) -> None:
        self.player, self.tools, self.seconds = player, tools, seconds
        prompt = player.host.env.system_prompt
        prompt = prompt if isinstance(prompt, str) else ""
        self.gold = Gold(system_prompt=prompt, own=self._own, calls_of=self._calls, tools=tools)
        self._floors: dict[str, float] = {}
        """What answers without content earn on each example, at most."""
        self._owns: dict[str, str | None] = {}
        """What gold_completion wrote, which may take it long, for each example."""
        self._played: dict[tuple[str, str], PlayedAnswer] = {}

    async def find(self, examples: Sequence[Example]) -> Gold:
        """The best way to answer these examples; the time is bounded, not the number of columns."""
        gold, began = self.gold, perf_counter()
        scouted = sorted(examples, key=self._is_sparse)[:SCOUTED_EXAMPLES]
        gold.asked = list({form: None for example in scouted for form in self._asked(example)})
        earned: dict[Way, list[float]] = defaultdict(list)
        for tier in range(2):
            for example in scouted:
                await self._try(example, list(self._tier(example, tier)), earned)
            enough = any(len(paid) == len(scouted) and is_full(min(paid)) for paid in earned.values())
            if enough or perf_counter() - began > self.seconds:
                break
        await self._finals(scouted, earned)
        gold.floor = self._floor
        if gold.best is not None and not gold.best.with_tools and not self.player.grouped:
            played = (self._played.get((each["id"], gold.text(each) or "")) for each in scouted)
            gold.first = {answer.example["id"]: answer for answer in played if answer is not None}
        return gold

    @property
    def _floor(self) -> float:
        """The mean of the floors: one row on which nonsense is right does not make all answers nonsense."""
        return fmean(self._floors.values()) if self._floors else 0.0

    def _is_sparse(self, example: Example) -> int:
        """Fewer for a row with more to read: where a list is empty, no way of writing it can be tried."""
        return -len({truth.label for truth in truths(example, self.gold.system_prompt)})

    def _asked(self, example: Example) -> list[Form]:
        return asked_forms(instructions(example, self.gold.system_prompt), short_values(example))

    def _own(self, example: Example) -> str | None:
        if example["id"] not in self._owns:
            text = self._ask("gold_completion", example)
            self._owns[example["id"]] = text if isinstance(text, str) else None
        return self._owns[example["id"]]

    def _calls(self, example: Example) -> Sequence[ToolCall]:
        return self._ask("gold_tool_calls", example, _tool_calls) or ()

    def _ask(self, hook: str, example: Example, read: Callable[[Any], Any] = lambda value: value) -> Any:
        try:
            return read(getattr(self.player.host.env, hook)(example))
        except Exception as error:
            self.gold.error, self.gold.raised_in = describe_failure(error), hook
            return None

    def _tier(self, example: Example, tier: int) -> Iterator[tuple[Way, str]]:
        """Answers to try: first the likely readings in every form, then all others."""
        if tier == 0 and (own := self._own(example)) is not None:
            yield Way(OWN_GOLD), own
        forms = all_forms(instructions(example, self.gold.system_prompt), short_values(example))
        readings = truths(example, self.gold.system_prompt)
        whole = [truth for truth in readings if truth.whole]
        readings = [truth for truth in readings if not truth.whole]
        for truth in (*readings[:FIRST_TRUTHS], *whole) if tier == 0 else readings[FIRST_TRUTHS:]:
            for form in (PLAIN,) if truth.whole else _fitting(forms, truth.text):
                yield Way(truth.label, form), form.write(truth.text)
        if tier == 1:
            yield from ((Way(label), text) for label, text in CONSTANT_ANSWERS.items())

    async def _try(self, example: Example, ways: list[tuple[Way, str]], earned: dict[Way, list[float]]) -> None:
        """Play each text once, and record its reward for every way that writes it."""
        most = MOST_SIBLINGS if self.player.grouped else MOST_TEXTS
        # Where there are too many, those in a form that the prompt asks for, and plain ones, are the likely ones.
        likely = sorted(ways, key=lambda each: each[0].form is not PLAIN and each[0].form not in self.gold.asked)
        texts = list(dict.fromkeys(text for _, text in likely))[:most]
        probes = [Probe("floor", text) for text in (GARBAGE, "")] if example["id"] not in self._floors else []
        probes += [self.gold.probe(example, text, kind="gold") for text in texts]
        answers = await self.player.play(example, probes) if texts else []
        paid: dict[str, float] = {}
        for answer in answers:
            if answer.total is not None and answer.kind == "floor":
                self._floors[example["id"]] = max(answer.total, self._floors.get(example["id"], answer.total))
            elif answer.total is not None:
                paid[answer.text] = answer.total
                self._played.setdefault((example["id"], answer.text), answer)
        self.gold.tried += len(texts)
        for way, text in ways:
            if text in paid:
                earned[way].append(paid[text])

    async def _finals(self, scouted: Sequence[Example], earned: dict[Way, list[float]]) -> None:
        """Compare the best few again after calling the tools; of equals the first wins, which is the plainer one."""
        gold = self.gold
        means = {way: fmean(paid) for way, paid in earned.items() if len(paid) == len(scouted)}
        means = {
            way: mean
            for way, mean in means.items()
            if way.label not in CONSTANT_ANSWERS or pays_more(mean, self._floor)
        }
        best = sorted(means, key=lambda way: -means[way])[:FINALISTS]
        if self.tools and not overrides(self.player.host.env, "gold_tool_calls"):
            again: dict[Way, list[float]] = defaultdict(list)
            for example in scouted:
                await self._with_tools(example, best, again)
            means |= {way: fmean(paid) for way, paid in again.items() if len(paid) == len(scouted)}
        gold.ways = sorted(means, key=lambda way: (-round(means[way], 9), way.with_tools))
        gold.earned = {way: means[way] for way in gold.ways}

    async def _with_tools(self, example: Example, ways: Iterable[Way], earned: dict[Way, list[float]]) -> None:
        tooled = [Way(way.label, way.form, with_tools=True) for way in ways]
        texts = [(way, text) for way in tooled if (text := self.gold.text(example, way)) is not None]
        probes = [self.gold.probe(example, text, way, kind=str(at)) for at, (way, text) in enumerate(texts)]
        for answer in await self.player.play(example, probes) if probes else ():
            if answer.total is not None and answer.kind.isdecimal():
                earned[texts[int(answer.kind)][0]].append(answer.total)


def _fitting(forms: Sequence[Form], text: str) -> Sequence[Form]:
    """The forms for this text: a JSON table stands between marks or by itself, in no sentence and no other table."""
    if not text.startswith(("{", "[")):
        return forms
    able = [form for form in forms if form in USUAL or not form.name.startswith(("as '", "after '"))]
    return sorted(able, key=lambda form: (form.name.startswith("as JSON"), form in USUAL and form is not PLAIN))


def _tool_calls(returned: Any) -> Sequence[ToolCall]:
    """What gold_tool_calls returned, as a sequence of calls."""
    calls = tuple(returned or ())
    if strange := [each for each in calls if not isinstance(each, ToolCall)]:
        raise EnvDefinitionError(f"{type(strange[0]).__name__} is no tool call. Return a list of ToolCall(name, JSON).")
    return calls
