"""Opens the model that a training run made: `RUN` or `RUN:CHECKPOINT` in place of a model's name.

RUN is the run's folder, its name under `runs/`, or its id on this machine's platform. Nothing is exported: the
checkpoint's weights are put into the base model as it is loaded. Every checkpoint that is not resumed is opened here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.config import data_dir
from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.extras import require

if TYPE_CHECKING:
    from torch import Tensor

    from benchmax.inference.local_model import LocalModel
    from benchmax.inference.weights.download import Say
    from benchmax.trainer.checkpoint import Checkpoint
    from benchmax.trainer.config import TrainConfig
    from benchmax.trainer.learning.policy import Policy

BASE = "base"
"""In place of a checkpoint: the model a run began with."""
TRIES = 3
"""A run that trains may replace a checkpoint by the next one while it is read."""


def split_checkpoint(text: str) -> tuple[str, str | None]:
    """MODEL and CHECKPOINT of `MODEL:CHECKPOINT`; a path that exists as a whole is a model."""
    name, colon, checkpoint = text.rpartition(":")
    if not colon or not name or os.path.exists(text):  # not Path.exists: a text too long for a path is no error
        return text, None
    return name, checkpoint or None


def find_run(name: str) -> Path | None:
    """The folder of the training run of that name; None when a model is meant."""
    from benchmax.inference.weights.store import is_name

    if is_name(name):
        return None  # a folder of that name is reached as ./name
    if _is_run(Path(name)):
        return Path(name)
    if Path(name).name != name:
        return None
    return next((each for each in (Path("runs") / name, data_dir() / "runs" / name) if _is_run(each)), None)


def pin_checkpoint(text: str) -> str:
    """`FOLDER:step-N` for a run, which means the same later and from any folder; the text itself for anything else."""
    name, checkpoint = split_checkpoint(text)
    run = find_run(name)
    if run is None:
        return text
    require("A run's model", "train")
    from benchmax.trainer.checkpoint import choose_checkpoint

    return f"{run.absolute()}:{choose_checkpoint(run, checkpoint or 'best').path.name}"


def open_run_model(run: Path, which: str, base: str, **options: Any) -> LocalModel:
    """The model a run made, as it was at a checkpoint, or with "base" the model `base` that it began with."""
    from benchmax.inference.local_model import LocalModel

    return LocalModel.load(base, **options) if which == BASE else open_checkpoint(run, which, **options)


def open_checkpoint(
    run: Path, which: str = "best", *, say: Say = lambda what: None, name: str | None = None, **options: Any
) -> LocalModel:
    """The model a run made, as it was at a checkpoint. `options` are those of `LocalModel.load`."""
    from benchmax.inference.local_model import LocalModel
    from benchmax.inference.weights.store import resolve
    from benchmax.trainer.rundir import read_config

    checkpoint, weights = read_weights(run, which)
    config = read_config(run)
    resolve(config.model.name, say=say)
    say(f"loading {checkpoint.path.name}")
    name = name or f"{run.resolve().name}:{checkpoint.path.name}"
    model = LocalModel.load(config.model.name, name=name, **options)
    model.engine.update_weights(_sampler_weights(model, config, weights))
    return model


def _sampler_weights(model: LocalModel, config: TrainConfig, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """What the sampler needs of a checkpoint: all its weights as they are, or an adapter's merged into the base's.

    Only an adapter needs the trainer's own copy of the model, and with it all that training imports.
    """
    if config.model.tune != "full":
        return trained_policy(config, weights).sampler_weights()
    if weights.keys() != model.engine.weights.own_names:
        raise RecordError(
            "The checkpoint's weights are not those of this model. Open it with the model that the run began with."
        )
    return weights


def read_weights(run: Path, which: str = "best") -> tuple[Checkpoint, dict[str, Tensor]]:
    """A checkpoint and its weights, read at once: the run may go on and remove it any time."""
    from benchmax.trainer.checkpoint import choose_checkpoint

    for _ in range(TRIES - 1):
        with suppress(NotFoundError, RecordError):
            found = choose_checkpoint(run, which)
            return found, _weights_here(found)
    found = choose_checkpoint(run, which)
    return found, _weights_here(found)


def _weights_here(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The checkpoint's weights; UsageError where another trainer's server keeps them."""
    weights = checkpoint.weights()
    if not weights:
        kept = checkpoint.state().get("learner", {}).get("weights_at", "its trainer's server")
        raise UsageError(f"The weights of {checkpoint.path} are not here but at {kept}. Fetch or sample them there.")
    return weights


def trained_policy(config: TrainConfig, weights: Mapping[str, Tensor]) -> Policy:
    """The policy of a run with the weights of a checkpoint."""
    from benchmax.inference.weights.store import resolve
    from benchmax.trainer.checkpoint import load_weights
    from benchmax.trainer.learning.policy import Policy

    policy = Policy.from_directory(resolve(config.model.name), tune=config.model.tune, lora=config.lora)
    load_weights(policy, weights)
    return policy


def _is_run(folder: Path) -> bool:
    return os.path.isfile(folder / "metrics.jsonl")
