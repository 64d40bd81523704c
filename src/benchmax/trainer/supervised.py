"""A supervised run: the model learns good answers, and its weights are saved once, at the end.

It writes a run directory as a training run does: metrics, events, a checkpoint to export or to fork from. It has no
environment. One that was interrupted begins again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch

from benchmax import metrics
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.weights.store import resolve
from benchmax.trainer.checkpoint import mark_best, save_checkpoint
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.learning.batch import Batch, TokenSequence
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.rundir import RunDir
from benchmax.trainer.start import load_learner
from benchmax.trainer.warm_start.sft_rows import sft_sequences
from benchmax.trainer.warm_start.supervised_steps import train_epochs

EVAL_ROWS = 256
"""Held-out rows the loss is measured on: few enough to take no longer than some steps."""


def train_supervised(
    path: Path, config: TrainConfig, held_out: int = 0, begins: Callable[[], None] = lambda: None
) -> str:
    """Learn the rows of `sft.data`, the last `held_out` of them left out; returns why the run ended.

    `begins` is called when everything is loaded.
    """
    directory = resolve(config.model.name)
    sequences = sft_sequences(config.sft.data, ChatTokens(directory))
    cut = len(sequences) - min(held_out, len(sequences) - 1)
    shown, left_out = sequences[:cut], sequences[cut:][:EVAL_ROWS]
    config.limits.steps = config.sft.epochs * math.ceil(cut / config.sft.batch)
    with closing(_open(path, config)) as run:
        torch.manual_seed(config.seed)
        learner = load_learner(config, directory)
        learner.policy.temperature = 1.0  # the loss is that of the answers as they are, however a run would sample
        _evaluate(run, learner, left_out, 0)
        begins()
        run.set_status("running", 0)
        run.log_event("started", step=0)

        def on_step(step: int, steps: int, loss: float) -> None:
            run.log_metrics(step, "train", {metrics.LOSS: loss})
            run.set_status("running", step + 1)

        done = len(train_epochs(learner, shown, config.sft, seed=config.seed, on_step=on_step))
        _evaluate(run, learner, left_out, done)
        save_checkpoint(run.path / "checkpoints", done, learner.policy, learner.optimizer, {})
        mark_best(run.path / "checkpoints", done)
        run.log_event("checkpoint", step=done)
        run.log_event("ended", step=done, reason="steps")
        run.set_status("complete", done)
    return "steps"


def _open(path: Path, config: TrainConfig) -> RunDir:
    """A new directory, or that of an attempt that was interrupted, without its records."""
    if not (path / "run.json").exists():
        return RunDir.create(path, config)
    run = RunDir.open(path)
    run.rewind(-1)
    run.config = config
    return run


def _evaluate(run: RunDir, learner: Learner, held_out: list[TokenSequence], step: int) -> None:
    """Record the loss on rows that are not learned from."""
    if held_out:
        run.log_metrics(step, "eval", {metrics.LOSS: -learner.score(Batch.of(held_out)).mean().item()})
