"""`benchmax train --backend tinker`: the embedded trainer's loop with the model on Tinker's server.

Environment, rewards, advantages, alarms, metrics and the run directory are those of every run, so console and commands
show it like any other. `model.name` is the base model as the server names it. Weights never come here: a checkpoint
holds the path under which the server keeps them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from benchmax.adapters.tinker.credentials import check_here
from benchmax.adapters.tinker.learner import TinkerLearner
from benchmax.adapters.tinker.remote import RemoteModel
from benchmax.adapters.tinker.sampler import TinkerSampler
from benchmax.errors import ConfigError, DatasetError
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.backend import OnEvent
from benchmax.trainer.checkpoint import find_checkpoint
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.interrupts import handle_signals
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.loop import Trainer
from benchmax.trainer.progress import Outcome
from benchmax.trainer.run_log import log_file
from benchmax.trainer.rundir import RunDir
from benchmax.trainer.sampling.sampler import Draw, rollout_settings
from benchmax.trainer.start import check_lengths, facts, new_run, prepare_resume, small_steps
from benchmax.trainer.task import Task, load_task, make_paths_absolute
from benchmax.trainer.warm_start.solutions import Solver


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
        run = RunDir.open(path)
        try:
            prepare_resume(run, checkpoint, changes)
            return await _train(run, task or load_task(run.config), on_event, checkpoint, grace)
        finally:
            run.close()


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
    if not task.train:
        raise DatasetError("There are no training rows. Give data.train a file with at least one usable row.")
    config = run.config
    torch.manual_seed(config.seed)
    with log_file(run.path / "logs" / "train.log"):
        remote = await asyncio.to_thread(
            RemoteModel.connect, config.model.name, rank=config.lora.rank, seed=config.seed
        )
        ended = "errored"
        try:
            async with EnvHost(task.env) as host:
                trainer = await _trainer(run, remote, host, task, on_event, grace)
                _restore(trainer, checkpoint)
                with handle_signals(trainer.interrupt, trainer.record_kill):
                    outcome = await trainer.train()
            ended = "success"
            return outcome
        finally:
            await asyncio.to_thread(remote.close, ended)


async def _trainer(
    run: RunDir, remote: RemoteModel, host: EnvHost, task: Task, on_event: OnEvent, grace: float | None
) -> Trainer:
    """The loop over a run directory, with everything of the model on the server."""
    config = run.config
    chat = await asyncio.to_thread(remote.chat)
    sampler = TinkerSampler(host, remote, chat, config, await asyncio.to_thread(remote.context))
    too_long = await check_lengths(task.train, host, sampler.model)
    for message in (*task.notes, *small_steps(config, task.train), *([too_long] if too_long else ())):
        on_event("note", run.log_event("note", message=message))
    on_event("begins", facts(run, "tinker", task))
    if config.output.save_tokens:
        run.write_vocabulary(chat.spell([token]) for token in range(chat.vocabulary))
    learner = TinkerLearner(remote, config, chat.vocabulary)
    solver = Solver(host, chat, rollout_settings(config, Draw("train", 0, 1, 0.0)), task.train)
    # Of a learner the loop itself asks what TinkerLearner has; the rest belongs to warm starts, which are off.
    return Trainer(
        run, cast(Learner, learner), sampler, task.train, task.held_out, on_event, solver, grace,
        host.env.PRIMARY_REWARD_KEY,
    )  # fmt: skip


def _restore(trainer: Trainer, which: str) -> None:
    """Go on from a checkpoint; a run that never got to one begins again."""
    folder = trainer.run.path / "checkpoints"
    if which == "latest" and not (folder / "latest").exists():
        trainer.run.rewind(-1)
        return
    found = find_checkpoint(folder, which)
    trainer.emit("resumed", step=found.step, lines_moved_aside=trainer.restore(found))
