"""A supervised run: the model is shown good answers, and its weights are saved once, at the end.

It leaves a run directory as a training run does: metrics, events, a checkpoint to export or to fork from. It has no
environment. One that was cut off begins again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmax.platform.runner.children.train_child import Phase
    from benchmax.trainer.config import TrainConfig
    from benchmax.trainer.learning.batch import TokenSequence
    from benchmax.trainer.learning.learner import Learner
    from benchmax.trainer.rundir import RunDir

EVAL_ROWS = 256
"""Held-out rows the loss is measured on: as many as take no longer than a few steps."""


async def sft_run(run_dir: Path, launch: Mapping[str, Any], phase: Phase) -> str:
    """Learn from the rows; gives the reason for the end."""
    phase.say("loading the model")
    return await asyncio.to_thread(_learn, run_dir, launch, phase)


def sft_config(run_dir: Path, launch: Mapping[str, Any], rows: int) -> TrainConfig:
    """The trainer's settings: those of any run, with the rows as its warm start."""
    from benchmax.platform.runner.children.train_child import train_config

    args = launch["args"]
    config = train_config(run_dir, args, rows)
    sft = config.sft
    sft.data = str(run_dir / launch["files"]["train_dataset_path"])
    sft.epochs, sft.batch = max(1, round(args.get("num_epochs") or 1)), config.rollouts.prompts_per_step
    config.limits.steps = sft.epochs * math.ceil(rows / sft.batch)
    return config


def _learn(run_dir: Path, launch: Mapping[str, Any], phase: Phase) -> str:
    from benchmax.inference.tokens.chat import ChatTokens
    from benchmax.inference.weights.store import resolve
    from benchmax.trainer.warm_start.rows import sft_sequences
    from benchmax.trainer.warm_start.teaching import warm_start

    data = run_dir / launch["files"]["train_dataset_path"]
    directory = resolve(launch["args"]["model"])
    sequences = sft_sequences(data, ChatTokens(directory))
    cut = len(sequences) - min(int(launch["args"].get("eval_rows") or 0), len(sequences) - 1)
    config = sft_config(run_dir, launch, cut)
    run = _open(run_dir, config)
    try:
        learner = _learner(config, directory)
        held_out = sequences[cut:][:EVAL_ROWS]
        _evaluate(run, learner, held_out, 0)
        phase.training()
        run.set_status("running", 0)
        run.log_event("started", step=0)

        def on_step(step: int, steps: int, loss: float) -> None:
            run.log_metrics(step, "train", {"loss": loss})
            run.set_status("running", step + 1)

        losses = warm_start(learner, sequences[:cut], config.sft, seed=config.seed, on_step=on_step)
        _evaluate(run, learner, held_out, len(losses))
        _save(run, learner, len(losses))
    finally:
        run.close()
    return "steps"


def _open(run_dir: Path, config: TrainConfig) -> RunDir:
    """A new directory, or the one of an attempt that was cut off, emptied of what it had recorded."""
    from benchmax.trainer.rundir import RunDir

    if not (run_dir / "run.json").exists():
        return RunDir.create(run_dir, config)
    run = RunDir.open(run_dir)
    run.rewind(-1)
    run.config = config
    return run


def _learner(config: TrainConfig, directory: Path) -> Learner:
    import torch

    from benchmax.trainer.learning.learner import Learner
    from benchmax.trainer.learning.policy import Policy
    from benchmax.trainer.start import pick_device

    torch.manual_seed(config.seed)
    policy = Policy.from_directory(
        directory, tune=config.model.tune, lora=config.lora, device=pick_device(config.model.device)
    )
    return Learner(policy, config)


def _evaluate(run: RunDir, learner: Learner, held_out: list[TokenSequence], step: int) -> None:
    """The loss on rows that are not learned from."""
    from benchmax.trainer.learning.batch import Batch

    if held_out:
        run.log_metrics(step, "eval", {"loss": -learner.score(Batch.of(held_out)).mean().item()})


def _save(run: RunDir, learner: Learner, step: int) -> None:
    from benchmax.trainer.checkpoint import mark_best, save_checkpoint

    folder = run.path / "checkpoints"
    save_checkpoint(folder, step, learner.policy, learner.optimizer, {})
    mark_best(folder, step)
    run.log_event("checkpoint", step=step)
    run.log_event("ended", step=step, reason="steps")
    run.set_status("complete", step)
