"""Everything a run needs to go on as if nothing had happened.

    step-<n>/
      weights.safetensors      the trained weights: the adapter, or all of them
      optimizer.safetensors    AdamW's moments
      random.safetensors       states of the random generators
      state.json               steps done, position in the data, best result, history of the alarms

Nothing is pickled. A checkpoint exists whole or not at all (`files.atomic.replacing_folder`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmax.errors import NotFoundError, RecordError
from benchmax.files.atomic import replacing_folder, write_json, write_text
from benchmax.trainer.learning.optim import Optimizer
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.rundir import check_run


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved point of a run."""

    path: Path

    @property
    def step(self) -> int:
        return _step_of(self.path)

    def state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.path / "state.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path} cannot be read: {error}. {_alternatives(self.path)}") from None
        return state

    def weights(self) -> dict[str, Tensor]:
        return _load(self.path / "weights.safetensors")

    def restore(self, policy: Policy, optimizer: Optimizer) -> dict[str, Any]:
        """Put weights, optimizer and random generators back; returns the rest of the state."""
        state = self.state()
        load_weights(policy, self.weights())
        optimizer.load(_load(self.path / "optimizer.safetensors"), state["updates"])
        set_random(_load(self.path / "random.safetensors"))
        return state


def save_checkpoint(
    folder: Path, step: int, policy: Policy, optimizer: Optimizer, state: Mapping[str, Any]
) -> Checkpoint:
    """Write the checkpoint of `step` and let `latest` point to it."""
    path = folder / f"step-{step}"
    with replacing_folder(path) as new:
        _save(policy.parameters(), new / "weights.safetensors")
        _save(optimizer.tensors(), new / "optimizer.safetensors")
        _save(random_states(), new / "random.safetensors")
        write_json(new / "state.json", {"step": step, "updates": optimizer.updates, "tune": policy.tune, **state})
    write_text(folder / "latest", path.name)
    return Checkpoint(path)


def mark_best(folder: Path, step: int) -> None:
    write_text(folder / "best", f"step-{step}")


def choose_checkpoint(run: Path, which: str = "best") -> Checkpoint:
    """The checkpoint of a run called `best`, `latest` or `step-<n>`; a run without held-out rows has no best, and its
    latest stands for it."""
    check_run(run)
    folder = run / "checkpoints"
    return find_checkpoint(folder, "latest" if which == "best" and not (folder / "best").exists() else which)


def find_checkpoint(folder: Path, which: str = "latest") -> Checkpoint:
    """The checkpoint called `latest`, `best` or `step-<n>`."""
    name = which
    if which in ("latest", "best"):
        try:
            name = (folder / which).read_text("utf-8").strip()
        except FileNotFoundError:
            raise NotFoundError(
                f"{folder} has no {which} checkpoint yet. The run ended before its first one."
            ) from None
    path, whole = folder / name, _whole(folder)
    if which == "latest" and path not in whole:
        path = whole[-1] if whole else path  # killed while that one was being replaced
    if path not in whole:
        there = ", ".join(item.name for item in _all(folder)) or "none"
        raise NotFoundError(f"There is no checkpoint {name} in {folder}; there are: {there}.")
    return Checkpoint(path)


def oldest_checkpoint(folder: Path) -> Checkpoint | None:
    """The oldest one that is kept."""
    return next(map(Checkpoint, _whole(folder)), None)


def _alternatives(checkpoint: Path) -> str:
    """Advice for a damaged checkpoint: the others."""
    folder = checkpoint.parent
    names = ", ".join(f"{folder.parent}:{path.name}" for path in _all(folder) if path != checkpoint)
    return f"Name another checkpoint: {names}." if names else "There is no other checkpoint: start a new run."


def _all(folder: Path) -> list[Path]:
    """Every checkpoint, the oldest first; anything else in the folder is ignored."""
    steps = (path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal())
    return sorted(steps, key=_step_of)


def _whole(folder: Path) -> list[Path]:
    return [path for path in _all(folder) if (path / "state.json").is_file()]


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def go_back(folder: Path, step: int, best: int) -> None:
    """Make `step` the latest and remove later ones, which the run makes anew; `best` is its best."""
    write_text(folder / "latest", f"step-{step}")
    for path in _all(folder):
        if _step_of(path) > step:
            shutil.rmtree(path)
    mark = folder / "best"
    if mark.exists() and not (folder / mark.read_text("utf-8").strip()).is_dir():
        mark.unlink()
        if (folder / f"step-{best}").is_dir():
            mark_best(folder, best)


def prune(folder: Path, keep_last: int, keep_best: bool) -> list[Path]:
    """Remove old checkpoints; returns those removed."""
    mark = folder / "best"
    best = mark.read_text("utf-8").strip() if mark.exists() else None
    old = [path for path in _all(folder)[:-keep_last] if not (keep_best and path.name == best)]
    for path in old:
        if path.name == best:
            mark.unlink()
        shutil.rmtree(path)
    return old


@torch.no_grad()
def load_weights(policy: Policy, weights: Mapping[str, Tensor]) -> None:
    """Put saved weights into a policy of the same shape."""
    own = policy.parameters()
    if set(own) != set(weights):
        raise RecordError(
            "The checkpoint's weights are not those of this model. Resume with the model and tuning the run began with."
        )
    for name, weight in own.items():
        if weight.shape != weights[name].shape:
            raise RecordError(
                f"{name} has another shape in the checkpoint. Resume with the settings the run began with."
            )
        weight.copy_(weights[name])


def random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random(states: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    with plain_disk_errors(path):
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextmanager
def plain_disk_errors(path: Path) -> Iterator[None]:
    """Raise safetensors' error for a full disk as the OSError it was."""
    try:
        yield
    except SafetensorError as error:
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from None


def _load(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{path} cannot be read: {error}. {_alternatives(path.parent)}") from None
    return tensors
