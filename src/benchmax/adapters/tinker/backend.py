"""`benchmax train --backend tinker`: the embedded trainer's loop with the model on Tinker's server.

Environment, rewards, advantages, alarms, metrics and the run directory are those of every run, so console and commands
show it like any other. `model.name` is the base model as the server names it. Weights never come here: a checkpoint
holds the path under which the server keeps them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import torch

from benchmax.adapters.tinker.credentials import check_here
from benchmax.adapters.tinker.learner import TinkerLearner
from benchmax.adapters.tinker.remote import RemoteModel
from benchmax.adapters.tinker.sampler import TinkerSampler
from benchmax.errors import ConfigError
from benchmax.files.logs import log_file
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.backend import OnEvent
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.interrupts import handle_signals
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.progress import Outcome
from benchmax.trainer.rundir import RunDir
from benchmax.trainer.start import check_rows, make_trainer, new_run, prepare_resume, restore
from benchmax.trainer.task import Task, load_task, make_paths_absolute


class TinkerBackend:
    """Trains runs on Tinker and resumes them."""

    async def train(
        self, config: TrainConfig, *, task: Task | None = None, on_event: OnEvent, grace: float | None = None
    ) -> Outcome:
        """Start a new run in `output.dir` and train to its end."""
        check_config(config)
        check_here()
        task = task or load_task(config)
        config = config.model_copy(deep=True)
        make_paths_absolute(config)
        with new_run(config) as run:
            return await _train(run, task, on_event, "latest", grace)

    async def resume(
        self,
        path: Path,
        *,
        checkpoint: str = "latest",
        task: Task | None = None,
        changes: Mapping[str, Any] | None = None,
        on_event: OnEvent,
        grace: float | None = None,
    ) -> Outcome:
        """Resume a run from a checkpoint, whose weights the server still has."""
        check_here()
        with closing(RunDir.open(path)) as run:
            prepare_resume(run, checkpoint, changes)
            return await _train(run, task or load_task(run.config), on_event, checkpoint, grace)


def check_config(config: TrainConfig) -> None:
    """Refuse settings that Tinker's server cannot follow, all at once."""
    from_us = config.warm_start in ("auto", "off") and not config.sft.data
    problems = [
        text
        for wrong, text in (
            (config.model.tune != "lora", "model.tune is full, but Tinker trains LoRA adapters: leave it at lora"),
            (config.lora.targets != ["all-linear"], "lora.targets cannot be chosen: leave it at all-linear"),
            (config.lora.dropout > 0, "lora.dropout is not offered: leave it at 0"),
            (config.algorithm.kl > 0, "algorithm.kl needs the base model's log-probs in the loss: leave it at 0"),
            (
                config.rollouts.temperature != 1.0,
                "rollouts.temperature has to be 1, at which Tinker's loss is computed",
            ),
            (not from_us, "warm_start is not offered: leave it at auto or off"),
        )
        if wrong
    ]
    if problems:
        raise ConfigError(f"The backend tinker cannot run this: {'; '.join(problems)}.")


async def _train(run: RunDir, task: Task, on_event: OnEvent, checkpoint: str, grace: float | None) -> Outcome:
    check_rows(run, task, on_event)
    config = run.config
    torch.manual_seed(config.seed)
    with log_file(run.path / "logs" / "train.log"):
        remote = await asyncio.to_thread(
            RemoteModel.connect, config.model.name, rank=config.lora.rank, seed=config.seed
        )
        ended = "errored"
        try:
            async with EnvHost(task.env) as host:
                chat = await asyncio.to_thread(remote.chat)
                sampler = TinkerSampler(host, remote, chat, config, await asyncio.to_thread(remote.context))
                # Of a learner the loop itself asks what TinkerLearner has; the rest is for warm starts, which are off.
                learner = cast(Learner, TinkerLearner(remote, config, chat.vocabulary))
                trainer = await make_trainer(run, learner, sampler, task, on_event, grace, "tinker")
                restore(trainer, checkpoint)
                with handle_signals(trainer.interrupt, trainer.record_kill):
                    outcome = await trainer.train()
            ended = "success"
            return outcome
        finally:
            await asyncio.to_thread(remote.close, ended)
