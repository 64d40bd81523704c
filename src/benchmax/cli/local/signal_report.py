"""Can a model learn from an environment? The look at its first samples, on the command line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from rich.progress import Progress

from benchmax.cli.local.models import open_named
from benchmax.cli.output import safe, stderr
from benchmax.doctor.first_samples import first_samples, known_of, measure_parts
from benchmax.doctor.learning_signal import Known, Signal
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.loading import make_env
from benchmax.envs.types import Example
from benchmax.models.base import ModelClient, Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.open_checkpoint import find_run, split_checkpoint


async def _known(client: ModelClient, spec: str, host: EnvHost, examples: Sequence[Example]) -> dict[str, Known] | None:
    """With the probability of good answers, where the model's weights are at hand as they are."""
    local = sys.modules.get(
        "benchmax.inference.local_model"
    )  # not there: the model is served, and needs no PyTorch here
    if local is None or not isinstance(client, local.LocalModel) or find_run(split_checkpoint(spec)[0]):
        return None
    from benchmax.trainer.warm_start.known_rewards import known_to

    return await known_to(client, host, examples)


def signal_of(
    env_class: type[BaseEnv],
    arguments: dict[str, Any],
    examples: Sequence[Example],
    model: str,
    base_url: str | None = None,
    api_key_var: str | None = None,
) -> Signal:
    """Load the model, let it try, and say what that shows."""

    async def look() -> Signal:
        client = open_named(model, env_class, examples, base_url, api_key_var)
        async with client, EnvHost(lambda: make_env(env_class, arguments)) as host:
            with Progress(console=stderr, transient=True) as bar:
                task = bar.add_task(safe(f"{client.name} tries"), total=None)
                known = await _known(client, model, host, examples)
                return await first_samples(
                    host,
                    examples,
                    client,
                    known=known,
                    on_group=lambda done, of: bar.update(task, completed=done, total=of),
                )

    return asyncio.run(look())


def print_signal(signal: Signal, model: str) -> None:
    stderr.print(f"[bold]can {safe(model)} learn it?[/]")
    *facts, forecast = signal.lines() if not signal.advice else signal.lines()[:-1]
    for line in facts:
        stderr.print(f"  {safe(line)}")
    stderr.print(f"  [{'green' if signal.learns else 'yellow'}]{safe(forecast)}[/]")
    if signal.advice:
        stderr.print(f"  {safe(signal.advice)}")


def signal_in(
    env_class: type[BaseEnv],
    arguments: dict[str, Any],
    examples: Sequence[Example],
    groups: Sequence[Sequence[Rollout]],
) -> Signal:
    """What rollouts that were played already show."""

    async def look() -> Signal:
        async with EnvHost(lambda: make_env(env_class, arguments)) as host:
            known = await known_of(host, examples, RolloutSettings(sampling=Sampling(max_tokens=None)))
            return await measure_parts(host, groups, known)

    return asyncio.run(look())
