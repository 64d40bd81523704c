"""After the last step: what was learned, with the same questions answered before and after training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmax import metrics
from benchmax.envs.reward_helpers import extract_completion_text, last_user_text
from benchmax.evaluation.report import by_example
from benchmax.files.jsonl import read_jsonl
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer.rundir import read_metrics

PAIRS = 3
"""Questions shown side by side."""
TEXT_CHARS = 600


@dataclass(slots=True)
class Answer:
    """What the model said to one question, and what that earned."""

    text: str
    reward: float | None
    cut_off: bool = False


@dataclass(slots=True)
class Pair:
    """One held-out question, answered before and after training."""

    example_id: str
    question: str
    before: Answer
    after: Answer


@dataclass(slots=True)
class Summary:
    """The results of a run."""

    before: float | None = None
    """Mean held-out reward before any training."""
    warm: float | None = None
    """After the warm start, if there was one."""
    best: float | None = None
    best_step: int = 0
    last: float | None = None
    ended_by_themselves: float | None = None
    """Share of the last held-out answers that were not cut off."""
    mends: int = 0
    taught: int = 0
    pairs: list[Pair] = field(default_factory=list)

    def headline(self) -> str:
        """The course of the held-out reward in one line."""
        if self.before is None or self.best is None:
            return "There is no held-out reward to compare."
        parts = [f"{self.before:.2f} as it came"]
        if self.warm is not None:
            parts.append(f"{self.warm:.2f} after the warm start")
        parts.append(f"{self.best:.2f} at best (after {self.best_step} steps)")
        return "held-out reward " + " → ".join(parts)


def summarise(run: Path, best_step: int) -> Summary:
    """Read a run's own records."""
    lines = read_metrics(run)
    evals = {line["step"]: line["values"] for line in lines if line["split"] == "eval"}
    warm = [line["values"] for line in lines if line["split"] == "warm_start"]
    events = list(read_jsonl(run / "events.jsonl"))
    found = Summary(best_step=best_step)
    if evals:
        first, last = evals[min(evals)], evals[max(evals)]
        found.before, found.last = first.get(metrics.REWARD), last.get(metrics.REWARD)
        found.ended_by_themselves = 1.0 - last.get(metrics.TRUNCATED, 0.0)
    if warm:
        found.warm = warm[-1].get(metrics.REWARD)
    at_best = evals.get(best_step, {}).get(metrics.REWARD) if best_step or not warm else found.warm
    found.best = at_best if at_best is not None else found.last
    found.mends = sum(event["kind"] == "mended" for event in events)
    found.taught = sum(event["kind"] == "taught" for event in events)
    first = min(evals, default=0)
    found.pairs = _pairs(run, f"eval-{first}", f"eval-{best_step}" if best_step != first else "warm_eval-0")
    return found


def _pairs(run: Path, first: str, best: str) -> list[Pair]:
    """The questions that gained most, and where nothing was gained the first ones; of several samples the first."""
    files = (run / "rollouts" / f"{name}.jsonl" for name in (first, best))
    before, after = (by_example(read_rollouts(file)) if file.exists() else {} for file in files)
    both = [(name, before[name][0], after[name][0]) for name in before if name in after]
    both.sort(key=lambda each: (each[1].reward or 0.0) - (each[2].reward or 0.0))
    return [
        Pair(name, last_user_text(then.messages)[-TEXT_CHARS:], _answer(then), _answer(now))
        for name, then, now in both[:PAIRS]
    ]


def _answer(rollout: Rollout) -> Answer:
    said = extract_completion_text(rollout.messages)[:TEXT_CHARS]
    calls = [call["function"] for message in rollout.completion for call in message.get("tool_calls") or ()]
    called = "".join(f"{call['name']}({call['arguments']})\n" for call in calls)
    return Answer(f"{called}{said}"[:TEXT_CHARS], rollout.reward, rollout.cut_off)
