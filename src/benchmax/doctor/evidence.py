"""The evidence: everything the examination saw, before anything is concluded from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmax.doctor.gold.finder import Gold
from benchmax.doctor.gold.truths import truth_text
from benchmax.doctor.probe_player import Shot
from benchmax.doctor.watched import HookCall
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets.load import DatasetReport
from benchmax.envs.datasets.rows import RowIssue
from benchmax.envs.types import Example, ToolDefinition

TOLERANCE = 0.02
"""Share of the gold reward below which two scores count as the same."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the doctor waits, and when it calls something slow."""

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
class Trial:
    """One tool called with made-up arguments."""

    tool: str
    arguments: dict[str, Any]
    example: Example
    text: str
    """What the model would have been shown."""
    call: HookCall | None
    """None when the arguments did not even pass the schema."""


@dataclass(frozen=True, slots=True)
class Mingled:
    """The gold answer's total when rollouts are played alone, and beside others."""

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
    """What was seen."""

    env_class: type[BaseEnv]
    env_args: dict[str, Any]
    # Data
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
    build_error: str = ""
    tools: list[ToolDefinition] = field(default_factory=list)
    tools_error: str = ""
    tools_advice: str = ""
    """What the error itself tells to do, where it is one of benchmax."""
    bad_tools: dict[str, str] = field(default_factory=dict)
    calls: list[HookCall] = field(default_factory=list)
    blocking: frozenset[str] = frozenset()
    grouped: bool = False
    left_behind: list[str] = field(default_factory=list)
    own_probe: dict[str, Any] | None = None
    pace: Pace = Pace()
    watched: bool = False
    """Whether another process looks whether this one is held."""
    # Answers
    gold_overridden: bool = False
    gold: Gold = field(default_factory=Gold)
    """The way of answering that earned most."""
    demonstrated: list[Shot] = field(default_factory=list)
    """What the environment's own `demonstrate` did; among the shots as gold."""
    demonstrate_error: str = ""
    shots: list[Shot] = field(default_factory=list)
    repeats: list[list[Shot]] = field(default_factory=list)
    """The same answer on the same example, played again."""
    mingled: list[Mingled] = field(default_factory=list)
    history: list[Shot] = field(default_factory=list)
    """Answers after a conversation that already holds an answer; kinds `old-gold` and `old-wrong`."""
    trials: list[Trial] = field(default_factory=list)
    edge_trials: list[Trial] = field(default_factory=list)
    """Tools called with the unusual values their schemas allow: 0, nothing, very much."""
    crosstalk: list[str] = field(default_factory=list)
    cut_short: bool = False

    # What the checks ask

    @property
    def system_prompt(self) -> str:
        """The instance's, which may differ from the class's."""
        prompt = getattr(self.env if self.env is not None else self.env_class, "system_prompt", "")
        return prompt if isinstance(prompt, str) else ""

    @property
    def scored(self) -> list[Shot]:
        return [shot for shot in self.shots if shot.total is not None]

    @property
    def gold_text_known(self) -> bool:
        return any(shot.kind == "gold" for shot in self.shots)

    @property
    def nothing_earns(self) -> bool:
        """Whether no answer of any kind was paid more than nonsense: broken, or not understood."""
        return not self.gold.works and not self.answers_matter

    def truth(self, example: Example) -> str | None:
        """The right answer as a text: the reading that is paid, or the column that is named like one."""
        return self.gold.truth(example) or truth_text(example)

    @property
    def needs_more_than_text(self) -> bool:
        """Whether a good answer may need tools or prepared state, which a text alone cannot show."""
        return bool(self.tools) or (self.env is not None and _prepares(self.env))

    @property
    def calls_unknown(self) -> bool:
        """Whether nobody says which tool calls a good answer takes, so that what rewards see of them stays unseen."""
        told = self.demonstrated or (self.env is not None and overrides(self.env, "gold_tool_calls"))
        return bool(self.tools) and not told

    @property
    def answers_matter(self) -> bool:
        """Whether, on some example, two answers earn differently."""
        totals: dict[str, set[float]] = {}
        for shot in self.scored:
            totals.setdefault(shot.example["id"], set()).add(round(_total(shot), 9))
        return any(len(each) > 1 for each in totals.values())

    @property
    def noise(self) -> float:
        """By how much the same answer's total differed between repeats, at most."""
        spreads = [[shot.total for shot in same if shot.total is not None] for same in self.repeats]
        return max((max(totals) - min(totals) for totals in spreads if totals), default=0.0)

    @property
    def components(self) -> set[str]:
        """The names of every component that any answer was given, scored or not."""
        rollouts = [shot.rollout for shot in self.shots]
        named = {name for rollout in rollouts for name in (*rollout.rewards, *rollout.unscored)}
        return named if any(rollout.rewards for rollout in rollouts) else set()

    def of(self, *kinds: str) -> list[Shot]:
        return [shot for shot in self.scored if shot.kind in kinds]

    def best(self, *kinds: str) -> list[Shot]:
        """For each example, the best paid of these answers."""
        best: dict[str, Shot] = {}
        for shot in self.of(*kinds):
            held = best.get(shot.example["id"])
            if held is None or _total(shot) > _total(held):
                best[shot.example["id"]] = shot
        return list(best.values())

    def mean(self, *kinds: str) -> float | None:
        totals = [_total(shot) for shot in self.best(*kinds)]
        return fmean(totals) if totals else None

    def gold_for(self, shots: Iterable[Shot]) -> float | None:
        """The gold answer's mean on the examples of these shots."""
        ids = {shot.example["id"] for shot in shots}
        totals = [_total(shot) for shot in self.best("gold") if shot.example["id"] in ids]
        return fmean(totals) if totals else None

    @property
    def floor(self) -> float:
        """What content-free answers earn at most."""
        return max((m for kind in ("nothing", "garbage") if (m := self.mean(kind)) is not None), default=0.0)

    @property
    def gold_works(self) -> bool:
        """Whether the gold answer is paid more than answers without content, so that it can serve as a measure."""
        gold = self.mean("gold")
        return gold is not None and gold > self.floor + 1e-9

    def share(self, *kinds: str) -> float | None:
        """The part of the gold reward that these answers earn; their plain reward while gold is no measure."""
        shots = self.best(*kinds)
        if not shots:
            return None
        paid = fmean(_total(shot) for shot in shots)
        gold = self.gold_for(shots)
        if gold is None or not self.gold_works:
            return paid
        if gold > 0:
            return paid / gold
        low = min(_total(shot) for shot in self.scored)
        return (paid - low) / (gold - low) if gold > low else 1.0

    def hook(self, name: str, where: Callable[[HookCall], bool] = lambda call: True) -> list[HookCall]:
        return [call for call in self.calls if call.hook == name and where(call)]


def _total(shot: Shot) -> float:
    assert shot.total is not None
    return shot.total


def _prepares(env: BaseEnv) -> bool:
    return overrides(env, "init_rollout")
