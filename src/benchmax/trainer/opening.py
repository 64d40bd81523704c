"""A training run in place of a model: `RUN` or `RUN:CHECKPOINT`, for the model it made.

RUN is its folder, its name under `runs/`, or its id on this machine's platform. Nothing is exported: the checkpoint's
weights are put into the base model as it is loaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.config import setting
from benchmax.extras import require

if TYPE_CHECKING:
    from benchmax.inference.local import LocalModel
    from benchmax.inference.weights.download import Say


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
    platform = Path(setting("DATA") or "~/.benchmax").expanduser()
    return next((each for each in (Path("runs") / name, platform / "runs" / name) if _is_run(each)), None)


def pin_checkpoint(text: str) -> str:
    """`FOLDER:step-N` for a run, so that it means the same later, wherever one is; what names no run as it is."""
    name, checkpoint = split_checkpoint(text)
    run = find_run(name)
    if run is None:
        return text
    require("A run's model", "train")
    from benchmax.trainer.export import choose_checkpoint

    return f"{run.absolute()}:{choose_checkpoint(run, checkpoint or 'best').path.name}"


def open_trained(run: Path, checkpoint: str | None, say: Say, **where: Any) -> LocalModel:
    """The model a run made, as it was at a checkpoint: its best unless one is named."""
    from benchmax.inference.local import LocalModel
    from benchmax.inference.weights.store import resolve
    from benchmax.trainer.export import choose_checkpoint, trained_policy
    from benchmax.trainer.rundir import read_config

    chosen, config = choose_checkpoint(run, checkpoint or "best"), read_config(run)
    resolve(config.model.name, say=say)
    say(f"loading {chosen.path.name}")
    model = LocalModel.load(config.model.name, name=f"{run.resolve().name}:{chosen.path.name}", **where)
    model.engine.update_weights(trained_policy(config, chosen).sampler_weights())
    return model


def _is_run(folder: Path) -> bool:
    return os.path.isfile(folder / "metrics.jsonl")
