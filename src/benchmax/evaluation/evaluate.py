"""An evaluation: play a dataset, keep every rollout in a directory, and continue there after any interruption."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmax import limits
from benchmax.envs.base_env import primary_key
from benchmax.envs.types import Example
from benchmax.evaluation.report import Report, summarise
from benchmax.evaluation.resume import REPORT, ROLLOUTS, EvalSpec, claim, unfinished_samples
from benchmax.files.atomic import write_json
from benchmax.memory import gc_frozen
from benchmax.models.base import ModelClient
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.arguments import check_example, check_examples, check_players
from benchmax.rollouts.groups import run_groups
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import RolloutLog, latest_rollouts
from benchmax.rollouts.settings import RolloutSettings

if TYPE_CHECKING:
    from benchmax.envs.remote.open_environment import NamedEnv


@dataclass(slots=True)
class Evaluation:
    """A finished evaluation."""

    report: Report
    rollouts: list[Rollout]
    duplicates: int = 0
    """Examples that were left out because their id occurs twice."""


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
    """Play every example `group_size` times. With a directory, play only what is missing or failed there.

    A directory belongs to one environment, model and group size; for another one, UsageError is raised.
    """
    check_players(host, model, settings)
    check_examples(examples)
    listed = list(examples)
    for example in listed:
        check_example(example)
    unique = {example["id"]: example for example in listed}
    directory = None if directory is None else Path(directory)
    if directory:
        claim(directory, {"env": host.name, "model": model.name, "group_size": group_size} | _script_of(model))
    with RolloutLog(directory / ROLLOUTS) if directory else nullcontext() as log:
        # Read only now that the log is locked and nobody else adds to it.
        done = latest_rollouts(log.path) if log else {}
        done = {key: rollout for key, rollout in done.items() if key[0] in unique and key[1] < group_size}
        samples_of = unfinished_samples(done, group_size, whole_groups=host.overrides("compute_group_reward"))
        groups = run_groups(
            host,
            unique.values(),
            model,
            settings,
            group_size=group_size,
            concurrency=concurrency,
            samples_of=samples_of,
        )
        with gc_frozen():
            async with aclosing(groups):
                async for group in groups:
                    for rollout in group:
                        if log:
                            log.append(rollout)
                        done[rollout.key] = rollout
                        if on_rollout:
                            on_rollout(rollout)
    rollouts = [done[key] for key in sorted(done)]
    report = summarise(rollouts, primary=primary_key(host.env))
    if directory:
        write_json(directory / REPORT, report.to_dict())
    return Evaluation(report, rollouts, len(listed) - len(unique))


async def evaluate_named(
    spec: EvalSpec,
    env: NamedEnv,
    examples: Iterable[Example],
    model: ModelClient,
    directory: Path,
    on_rollout: Callable[[Rollout], None] | None = None,
) -> Evaluation:
    """Carry out an evaluation that a spec names, or what is left of it, in its directory."""
    async with model, EnvHost(env.make) as host:
        spec.save(directory)
        return await evaluate(
            host, examples, model, spec.settings(), group_size=spec.group_size, concurrency=spec.concurrency,
            directory=directory, on_rollout=on_rollout,
        )  # fmt: skip


def _script_of(model: ModelClient) -> dict[str, str]:
    """What distinguishes scripts, which share a name: their text. Functions cannot be distinguished."""
    if not isinstance(model, ScriptedModel) or callable(model.script):
        return {}
    return {"script": hashlib.sha256(repr(model.script).encode(errors="replace")).hexdigest()[:12]}
