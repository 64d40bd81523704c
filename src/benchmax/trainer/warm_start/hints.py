"""The model's own answers with the solution in sight: those that earn are learned without the hint.

It helps where the form that is paid is unknown, or where a reward asks for more than the answer itself: the model knows
how to phrase things, and the hint says what. Each answer is asked for with the hint, and kept with the prompt of the
rollouts.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmax.doctor.gold.ground_truths import truth_text
from benchmax.envs.base_env import PROMPT_COLUMNS
from benchmax.envs.types import Example, Messages
from benchmax.metrics import pays_more
from benchmax.models.base import TokenSegment
from benchmax.models.text_tools import plain_text
from benchmax.rollouts.record import Rollout
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.sampling.sampler import prompt_tokens
from benchmax.trainer.warm_start.forced_model import demonstration_sequence
from benchmax.trainer.warm_start.solutions import Solution, Solver

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

SAMPLES_WITH_HINT = 4
"""Samples of each row with a hint."""
HINT_CHARS = 1_000
"""Characters of a hint."""
OnTried = Callable[[int, int], None]
"""Receives how many rows were tried, and how many of them have a solution."""
HINT = "\n\nThe solution, for your eyes only, is: {solution}\nGive the answer in the form asked for."


async def hinted_solutions(
    solver: Solver,
    trainer: Trainer,
    rows: Sequence[Example],
    until: float = math.inf,
    on_tried: OnTried = lambda rows, found: None,
) -> list[Solution]:
    """The best of each row's hinted answers, where it earns more than nonsense.

    Rows are asked as many at once as a step samples; none any more when the monotonic clock shows `until`.
    """
    asked = [(row, hinted) for row in rows if (hinted := with_hint(row)) is not None]
    rollouts = trainer.config.rollouts
    draw = Draw("hint", 0, SAMPLES_WITH_HINT, rollouts.temperature)
    at_once = max(1, rollouts.prompts_per_step * rollouts.group_size // SAMPLES_WITH_HINT)
    found: list[Solution] = []
    for first in range(0, len(asked), at_once):
        if time.monotonic() >= until:
            break
        some = asked[first : first + at_once]
        groups = await trainer.sampler.sample([hinted for _, hinted in some], draw, trainer.on_group)
        made = [await _unhinted(solver, row, group) for (row, _), group in zip(some, groups, strict=True)]
        found += [each for each in made if each is not None]
        on_tried(first + len(some), len(found))
    return found


async def _unhinted(solver: Solver, row: Example, group: Sequence[Rollout]) -> Solution | None:
    """The best answer of a group with the prompt of the rollouts; None when it earns no more than nonsense."""
    paid = [each for each in group if each.ok and each.reward is not None and not each.cut_off and each.tokens]
    best = max(paid, key=lambda each: each.reward or 0.0, default=None)
    part = solver.host.part_of(row)
    if best is None or best.reward is None or not pays_more(best.reward, (await solver.gold(part)).floor):
        return None
    prompt = await prompt_tokens(solver.host, solver.chat, row)
    segments = [TokenSegment(prompt, sampled=False), *best.tokens[1:]]
    return Solution(row["id"], demonstration_sequence(segments), best.reward, "hint", best)


def with_hint(example: Example) -> Example | None:
    """The example with its solution at the end of the question; None when the task has none to give."""
    hidden = {*PROMPT_COLUMNS, "init_rollout_args"}
    task = {name: value for name, value in (example.get("task") or {}).items() if name not in hidden}
    solution = truth_text(example) or (json.dumps(task, ensure_ascii=False, default=str) if task else "")
    if not solution:
        return None
    *before, last = example["prompt_messages"]
    hint = HINT.format(solution=solution[:HINT_CHARS])
    messages: Messages = [*before, {**last, "content": f"{plain_text(last.get('content'))}{hint}"}]
    return {**example, "prompt_messages": messages}
