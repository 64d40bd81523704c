"""The evidence: everything the examination observed, before checks conclude anything from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmax.doctor.gold.answer_search import LEAST_TRUSTED, Gold
from benchmax.doctor.gold.ground_truths import prompt_text, truth_text
from benchmax.doctor.probe_player import PlayedAnswer
from benchmax.doctor.recording_host import HookCall
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets.load import DatasetReport
from benchmax.envs.datasets.rows import RowIssue
from benchmax.envs.types import Example, ToolDefinition
from benchmax.metrics import pays_more

TOLERANCE = 0.02
"""Share of the gold reward below which two scores count as the same."""
LEAST_NOISE = 1e-6
"""A difference between rewards of the same answer that is no rounding."""
ERRATIC = 0.5
"""Share of the largest reward by which the same answer must differ, for nothing to be measured by it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the doctor waits, and what it calls slow."""

    init_seconds: float = 60.0
    tool_seconds: float = 30.0
    reward_seconds: float = 30.0
    release_seconds: float = 15.0
    slow_reward: float = 2.0
    """A reward that takes this long (median) is called slow."""
    probe_seconds: float = 120.0
    """After this time no further probes are begun."""
    at_once: int = 8
    """Rollouts in flight."""


PACES: dict[str, Pace] = {
    "quick": Pace(20.0, 10.0, 10.0, 5.0, slow_reward=1.0, probe_seconds=20.0),
    "normal": Pace(),
    "patient": Pace(300.0, 120.0, 300.0, 60.0, slow_reward=20.0, probe_seconds=1_800.0),
}


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """One tool called with made-up arguments."""

    tool: str
    arguments: dict[str, Any]
    example: Example
    text: str
    """What the model would have read."""
    call: HookCall | None
    """None when the arguments do not pass the schema."""


@dataclass(frozen=True, slots=True)
class Interference:
    """What the gold answer earned alone, and while other rollouts were open."""

    example: Example
    alone: float | None
    together: float | None
    beside: str = "with a second rollout open"

    def differs(self, tolerance: float = TOLERANCE) -> bool:
        if self.alone is None:
            return False
        return self.together is None or abs(self.alone - self.together) > tolerance


@dataclass(slots=True)
class Evidence:
    """Everything that was observed."""

    env_class: type[BaseEnv]
    env_args: dict[str, Any]
    # Data
    rows: int = 0
    """Rows read, usable or not."""
    report: DatasetReport | None = None
    row_issues: list[RowIssue] = field(default_factory=list)
    data_error: str = ""
    examples: list[Example] = field(default_factory=list)
    eval_examples: list[Example] | None = None
    eval_error: str = ""
    unstable_rows: list[str] = field(default_factory=list)
    sample: list[Example] = field(default_factory=list)
    """The examples that are played."""
    # Environment
    env: BaseEnv | None = None
    build_error: Exception | None = None
    tools: list[ToolDefinition] = field(default_factory=list)
    tools_error: Exception | None = None
    bad_tools: dict[str, str] = field(default_factory=dict)
    calls: list[HookCall] = field(default_factory=list)
    blocking: frozenset[str] = frozenset()
    grouped: bool = False
    left_behind: list[str] = field(default_factory=list)
    own_probe: dict[str, Any] | None = None
    pace: Pace = Pace()
    supervised: bool = False
    """Whether another process watches that this one is not blocked."""
    # Answers
    gold: Gold = field(default_factory=Gold)
    """The way of answering that earned most."""
    demonstrated: list[PlayedAnswer] = field(default_factory=list)
    """The rollouts of the environment's own `demonstrate`; they are among the answers as gold."""
    demonstrate_error: str = ""
    answers: list[PlayedAnswer] = field(default_factory=list)
    repeats: list[list[PlayedAnswer]] = field(default_factory=list)
    """The same answer on the same example, played again."""
    interference: list[Interference] = field(default_factory=list)
    history: list[PlayedAnswer] = field(default_factory=list)
    """Answers after a conversation that already holds an answer; kinds `old-gold`, `old-wrong` and `old-blank`."""
    siblings: list[PlayedAnswer] = field(default_factory=list)
    """A group in which every answer stands twice."""
    tool_trials: list[ToolTrial] = field(default_factory=list)
    edge_trials: list[ToolTrial] = field(default_factory=list)
    """Tools called with unusual values that their schemas allow (0, nothing, very long texts), and with a row's own."""
    crosstalk: list[str] = field(default_factory=list)
    _asked: dict[str, list[Example]] | None = None
    """The examples by what a rollout can see of them, filled at the first use."""

    # What checks read

    @property
    def system_prompt(self) -> str:
        """The instance's, which may differ from the class's."""
        prompt = getattr(self.env if self.env is not None else self.env_class, "system_prompt", "")
        return prompt if isinstance(prompt, str) else ""

    def prompt(self, example: Example) -> str:
        """Everything the model reads before it answers."""
        return prompt_text(example, self.system_prompt)

    @property
    def scored(self) -> list[PlayedAnswer]:
        return [answer for answer in self.answers if answer.total is not None]

    @property
    def gold_text_known(self) -> bool:
        return any(answer.kind == "gold" for answer in self.answers)

    @property
    def nothing_earns(self) -> bool:
        """Whether no answer earned more than nonsense: the reward is broken, or not understood."""
        return not self.gold.works and not any(pays_more(total_of(each), self.floor) for each in self.scored)

    def truth(self, example: Example) -> str | None:
        """The right answer as a text: the reading that earns, or the column with a usual name."""
        return self.gold.truth(example) or truth_text(example)

    def overrides(self, hook: str) -> bool:
        """Whether the environment could be built and has a hook of its own."""
        return self.env is not None and overrides(self.env, hook)

    @property
    def needs_more_than_text(self) -> bool:
        """Whether a good answer, which no hook writes, may need tools or prepared state: a text cannot show it."""
        return (bool(self.tools) or self.overrides("init_rollout")) and not self.overrides("gold_completion")

    @property
    def calls_unknown(self) -> bool:
        """Whether it is unknown which tool calls a good answer takes, and so how they are rewarded."""
        return bool(self.tools) and not self.demonstrated and not self.overrides("gold_tool_calls")

    @property
    def totals(self) -> list[list[float]]:
        """What the answers to each example earn."""
        totals: dict[str, list[float]] = defaultdict(list)
        for answer in self.scored:
            totals[answer.example["id"]].append(round(total_of(answer), 9))
        return list(totals.values())

    @property
    def answers_matter(self) -> bool:
        """Whether, on some example, two answers earn differently."""
        return any(len(set(each)) > 1 for each in self.totals)

    @property
    def most_varied(self) -> list[PlayedAnswer]:
        """The answer whose totals differ most: every time it was played and scored."""
        scored = ([answer for answer in same if answer.total is not None] for same in self.repeats)
        return max(scored, key=_spread, default=[])

    @property
    def noise(self) -> float:
        """The largest difference between totals of the same answer."""
        return _spread(self.most_varied)

    @property
    def erratic(self) -> bool:
        """Whether the same answer earns so differently that what another one earns says nothing."""
        scale = max((abs(total_of(each)) for each in self.scored), default=0.0)
        return self.noise > LEAST_NOISE and self.noise >= ERRATIC * scale

    def twin(self, example: Example) -> Example | None:
        """Another example that asks the same, and says so in nothing that the model or its tools can see."""
        if self._asked is None:
            self._asked = {}
            for each in self.examples:
                self._asked.setdefault(_visible(each), []).append(each)
        alike = self._asked.get(_visible(example), ())
        return next((each for each in alike if each["id"] != example["id"]), None)

    @property
    def components(self) -> set[str]:
        """The names of all components that any answer got, scored or not."""
        rollouts = [answer.rollout for answer in self.answers]
        named = {name for rollout in rollouts for name in (*rollout.rewards, *rollout.unscored)}
        return named if any(rollout.rewards for rollout in rollouts) else set()

    def of(self, *kinds: str) -> list[PlayedAnswer]:
        return [answer for answer in self.scored if answer.kind in kinds]

    def best(self, *kinds: str) -> list[PlayedAnswer]:
        """For each example, the answer of these kinds that earned most."""
        best: dict[str, PlayedAnswer] = {}
        for answer in self.of(*kinds):
            best[answer.example["id"]] = max(best.get(answer.example["id"], answer), answer, key=total_of)
        return list(best.values())

    def mean(self, *kinds: str) -> float | None:
        return _mean(self.best(*kinds))

    def gold_for(self, answers: Iterable[PlayedAnswer]) -> float | None:
        """The gold answer's mean reward on the examples of these answers."""
        ids = {answer.example["id"] for answer in answers}
        return _mean([answer for answer in self.best("gold") if answer.example["id"] in ids])

    @property
    def floor(self) -> float:
        """The most that answers without content earn."""
        return max((m for kind in ("nothing", "garbage") if (m := self.mean(kind)) is not None), default=0.0)

    @property
    def gold_works(self) -> bool:
        """Whether the gold answer earns more than answers without content, so that others can be measured by it."""
        gold = self.mean("gold")
        return gold is not None and pays_more(gold, self.floor) and not self.gold_doubtful

    @property
    def gold_doubtful(self) -> bool:
        """Whether the best answer is a guess from columns that are not named like one, and earns little of anything."""
        best, golds = self.gold.best, self.of("gold")
        if best is None or not best.guessed or not golds:
            return False
        parts = [[each.rollout.rewards.get(name, 0.0) for each in golds] for name in golds[0].rollout.rewards]
        return max([self.mean("gold") or 0.0, *map(fmean, parts)]) < LEAST_TRUSTED

    def share(self, *kinds: str) -> float | None:
        """The share of the gold reward that these answers earn; their own reward when gold is no measure."""
        answers = self.best(*kinds)
        earned, gold = _mean(answers), self.gold_for(answers)
        if earned is None or gold is None or not self.gold_works:
            return earned
        if gold > 0:
            return earned / gold
        low = min(total_of(answer) for answer in self.scored)
        return (earned - low) / (gold - low) if gold > low else 1.0

    def held_ids(self) -> list[str]:
        """Attributes of the environment that still hold ids of released rollouts."""
        if self.env is None:
            return []
        ids = {call.rollout_id for call in self.calls if call.rollout_id}
        kept = {**{k: v for k, v in vars(type(self.env)).items() if not k.startswith("__")}, **vars(self.env)}
        return [name for name, value in kept.items() if isinstance(value, dict | list | set) and _holds(value, ids, 0)]

    def hook(self, name: str) -> list[HookCall]:
        """The calls of a hook."""
        return [call for call in self.calls if call.hook == name]


def _holds(value: Any, ids: set[str], depth: int) -> bool:
    if isinstance(value, str):
        return value in ids
    if depth > 2 or not isinstance(value, dict | list | set | tuple):
        return False
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
    return any(_holds(part, ids, depth + 1) for part in parts[:10_000])


def _visible(example: Example) -> str:
    return repr((example["prompt_messages"], example.get("init_rollout_args")))


def _mean(answers: Sequence[PlayedAnswer]) -> float | None:
    return fmean(map(total_of, answers)) if answers else None


def _spread(answers: Sequence[PlayedAnswer]) -> float:
    totals = list(map(total_of, answers))
    return max(totals) - min(totals) if totals else 0.0


def total_of(answer: PlayedAnswer) -> float:
    """The total of a scored answer."""
    assert answer.total is not None
    return answer.total
