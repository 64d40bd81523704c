"""An evaluation: play a dataset, keep every rollout, be able to go on after any interruption.

runs/eval-…/
  eval.json         what was asked for, which `--resume` needs, and what the folder was made for
  rollouts.jsonl    every rollout, as it finished
  report.json       the summary, once all are done
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.types import Example
from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.evaluation.report import Report, summarise
from benchmax.files.atomic import write_json
from benchmax.memory import gc_frozen
from benchmax.models.base import ModelClient
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.groups import run_groups
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.log import RolloutLog, latest_rollouts, read_rollouts
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings

CONFIG, ROLLOUTS, REPORT = "eval.json", "rollouts.jsonl", "report.json"
MADE_FOR = "made_for"


@dataclass(slots=True)
class Evaluation:
    """A finished evaluation."""

    report: Report
    rollouts: list[Rollout]
    duplicates: int = 0
    """Examples left out because one with the same id was there already."""


async def evaluate(
    host: EnvHost,
    examples: Iterable[Example],
    model: ModelClient,
    settings: RolloutSettings = RolloutSettings(),
    *,
    group_size: int = 1,
    concurrency: int = limits.ROLLOUTS_AT_ONCE,
    directory: str | Path | None = None,
    on_rollout: Callable[[Rollout], None] | None = None,
) -> Evaluation:
    """Play every example `group_size` times. With a directory, only what is missing or failed there is played.

    A directory belongs to one environment, model and group size; another one is refused.
    """
    listed = list(examples)
    unique = {example["id"]: example for example in listed}
    directory = None if directory is None else Path(directory)
    if directory:
        claim(directory, {"env": host.name, "model": model.name, "group_size": group_size} | _script_of(model))
    log = RolloutLog(directory / ROLLOUTS) if directory else None  # first: from here on nobody else adds to it
    try:
        done = latest_rollouts(log.path) if log else {}
        done = {key: rollout for key, rollout in done.items() if key[0] in unique and key[1] < group_size}
        samples_of = _unfinished(done, group_size, whole_groups=host.overrides("compute_group_reward"))
        groups = run_groups(
            host,
            unique.values(),
            model,
            settings,
            group_size=group_size,
            concurrency=concurrency,
            samples_of=samples_of,
        )

        def keep(rollout: Rollout) -> None:
            if log:
                log.append(rollout)
            done[rollout.key] = rollout
            if on_rollout:
                on_rollout(rollout)

        await _play(groups, keep)
    finally:
        if log:
            log.close()
    rollouts = [done[key] for key in sorted(done)]
    report = summarise(rollouts, primary=host.env.PRIMARY_REWARD_KEY)
    if directory:
        write_json(directory / REPORT, report.to_dict())
    return Evaluation(report, rollouts, len(listed) - len(unique))


async def _play(groups: AsyncGenerator[list[Rollout], None], keep: Callable[[Rollout], None]) -> None:
    with gc_frozen():
        async with aclosing(groups):
            async for group in groups:
                for rollout in group:
                    keep(rollout)


def _unfinished(
    done: Mapping[tuple[str, int], Rollout], group_size: int, *, whole_groups: bool
) -> Callable[[Example], list[int]]:
    """Which samples of an example are missing or failed; all of them when siblings are scored together."""

    def owed(example: Example) -> list[int]:
        missing = [s for s in range(group_size) if (r := done.get((example["id"], s))) is None or not r.ok]
        return list(range(group_size)) if missing and whole_groups else missing

    return owed


def claim(directory: Path, made_for: Mapping[str, Any]) -> None:
    """Write down what the folder is for; UsageError if it was made for something else."""
    config = read_config(directory) if (directory / CONFIG).is_file() else {}
    before = config.get(MADE_FOR) or _told_by_rollouts(directory)
    for name, wanted in made_for.items():
        there = before.get(name, wanted)
        if there != wanted:
            what = name.replace("_", " ")
            raise UsageError(
                f"{directory} holds an evaluation of {what} {there}, and this one is of {what} {wanted}. "
                "Choose another folder."
            )
    if config.get(MADE_FOR) != made_for:
        save_config(directory, {**config, MADE_FOR: dict(made_for)})


def _script_of(model: ModelClient) -> dict[str, str]:
    """Scripts share a name, so what one says tells it from another; of a function, nothing can be told."""
    if not isinstance(model, ScriptedModel) or callable(model.script):
        return {}
    return {"script": hashlib.sha256(repr(model.script).encode(errors="replace")).hexdigest()[:12]}


def _told_by_rollouts(directory: Path) -> dict[str, Any]:
    """What a folder without a note was made for: its first rollout says."""
    path = directory / ROLLOUTS
    first = next(read_rollouts(path), None) if path.exists() else None
    return {"env": first.env, "model": first.model} if first else {}


def save_config(directory: Path, config: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / CONFIG, config)


def read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    if not path.is_file():
        raise NotFoundError(f"{directory} holds no evaluation ({CONFIG} is missing). Check the path.")
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}. Start the evaluation again in a new folder.") from None
    if not isinstance(config, dict):
        raise RecordError(f"{path} is damaged: it holds no object. Start the evaluation again in a new folder.")
    return config
