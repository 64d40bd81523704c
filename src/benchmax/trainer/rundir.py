"""A run's directory: the append-only records that a killed trainer, a server and a reader agree on.

    runs/<name>/
      run.json                     format version, when and by which benchmax it was made
      config.toml  config.json     the settings, all of them
      metrics.jsonl                one line per step and split: {"step", "split", "time", "values"}; the splits are
                                   train, eval, sft for the steps of a warm start, warm_start for held-out rows after it
      events.jsonl                 lifecycle, alerts, artifacts: {"time", "kind", …}
      rollouts/train-<step>.jsonl  every rollout, with its rewards, advantage and reason of discard
      rollouts/warm_start-0.jsonl  the solutions a warm start showed; warm_eval-0.jsonl: held-out rows after it
      vocabulary.json              what each token reads, when tokens are saved
      status.json                  state, step, heartbeat (replaced atomically)
      logs/train.log
      checkpoints/step-<n>/        weights, optimizer, random state, position in the data after n steps
      checkpoints/{latest,best}    the name of one
      aside/                       records of steps that were lost in a crash and repeated

Steps count from 0; an evaluation at step n comes after n updates. Every file is complete at any instant: a line is
written in one call, other files are renamed into place.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import benchmax
from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.files.atomic import read_object, recover_folders, remove_temporary, write_text
from benchmax.files.jsonl import JsonlWriter, line_of, read_jsonl
from benchmax.files.redaction import hide_texts, without_secrets
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import TrainConfig, build_config, dump_toml

FORMAT = 1


class RunDir:
    """An open run directory. One process writes to it."""

    def __init__(self, path: Path, config: TrainConfig) -> None:
        self.path = path
        self.config = config
        for name in ("rollouts", "checkpoints", "logs"):  # a copy of a run may lack some
            (path / name).mkdir(parents=True, exist_ok=True)
        self.metrics = JsonlWriter(path / "metrics.jsonl")
        self.events = JsonlWriter(path / "events.jsonl")

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> RunDir:
        """Make a new run directory; an existing one is never written over."""
        if (path / "run.json").exists():
            raise UsageError(f"{path} already holds a run. Resume it with --resume, or give another output.name.")
        path.mkdir(parents=True, exist_ok=True)
        write_config(path, config)
        made = {"format": FORMAT, "benchmax": benchmax.__version__, "created": time.time(), "name": path.name}
        write_text(path / "run.json", json.dumps(made, indent=2))
        return cls(path, config)

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Open a run to resume it; a torn last line is cut off."""
        check_run(path)
        run = cls(path, read_config(path))
        run.sweep()
        return run

    def log_metrics(self, step: int, split: str, values: Mapping[str, float]) -> dict[str, Any]:
        """Append one line; values that are not finite are left out, since JSON has none."""
        kept = {name: round(value, 10) for name, value in values.items() if math.isfinite(value)}
        line = {"step": step, "split": split, "time": time.time(), "values": kept}
        self.metrics.write(line)
        return line

    def log_event(self, kind: str, **data: Any) -> dict[str, Any]:
        line = {"time": time.time(), "kind": kind, **data}
        self.events.write(line)
        return line

    def write_rollouts(self, split: str, step: int, rollouts: Iterable[Rollout], *, tokens: bool = False) -> Path:
        """Write all rollouts of a step, as one file that appears complete."""
        path = self.path / "rollouts" / f"{split}-{step}.jsonl"
        hidden = () if tokens else ("tokens",)
        records = ({k: v for k, v in rollout.to_dict().items() if k not in hidden} for rollout in rollouts)
        write_text(path, "".join(map(line_of, records)), durable=False)
        return path

    def write_vocabulary(self, texts: Iterable[str]) -> None:
        """Write the text of each token, by its id: for viewers of saved tokens, which have no tokenizer."""
        write_text(self.path / "vocabulary.json", json.dumps(list(texts), ensure_ascii=False), durable=False)

    def set_status(self, state: str, step: int, **more: Any) -> None:
        """Replace status.json; its time is the heartbeat."""
        now = {"state": state, "step": step, "steps": self.config.limits.steps, "pid": os.getpid(), "time": time.time()}
        status = hide_texts(now | more, without_secrets)
        write_text(self.path / "status.json", json.dumps(status), durable=False)

    def rewind(self, step: int, *, evaluated: bool = True) -> int:
        """Move aside what was recorded after the checkpoint of `step`; returns the number of lines moved.

        `evaluated` says whether that checkpoint was made after the evaluation of its step.
        """

        def belongs(line: Mapping[str, Any]) -> bool:
            if line["split"] in ("sft", "warm_start"):  # they come before the first checkpoint
                return step >= 0
            at_step = evaluated and line["split"] == "eval" and line["step"] == step
            return at_step or bool(line["step"] < step)

        self.metrics.close()
        moved = _move_lines(self.metrics.path, self.path / "aside", belongs)
        self.metrics = JsonlWriter(self.metrics.path)
        for path in (self.path / "rollouts").glob("*.jsonl"):
            split, _, number = path.stem.rpartition("-")
            of_a_step = number.isdecimal() and split in ("train", "eval")
            if of_a_step and not belongs({"split": split, "step": int(number)}):
                (self.path / "aside").mkdir(exist_ok=True)
                path.replace(self.path / "aside" / f"{path.stem}-{time.time_ns()}.jsonl")
        return moved

    def sweep(self) -> None:
        """Remove half-made files that a killed process left."""
        recover_folders(self.path / "checkpoints")
        remove_temporary(self.path)

    def close(self) -> None:
        self.metrics.close()
        self.events.close()


def check_run(path: Path) -> dict[str, Any]:
    """The contents of run.json; raises when there is none or when a newer benchmax wrote it."""
    try:
        made = json.loads((path / "run.json").read_text("utf-8"))
        if not isinstance(made, dict):
            raise ValueError("it holds no object")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"There is no run in {path}. Check the path; `ls {path.parent}` shows what is there."
        ) from None
    except ValueError as error:
        raise RecordError(f"{path / 'run.json'} is damaged: {error}. Restore it from a copy of the run.") from None
    if made.get("format", 0) > FORMAT:
        raise RecordError(
            f"{path} was written in format {made['format']}; this benchmax reads up to {FORMAT}. Upgrade benchmax."
        )
    return made


def read_config(path: Path) -> TrainConfig:
    """The settings a run was started with."""
    try:
        tree = json.loads((path / "config.json").read_text("utf-8"))
        if isinstance(data := tree.get("data") if isinstance(tree, dict) else None, dict):
            data.setdefault("hold_out", "last")  # how runs were split before the setting existed
        return build_config(tree)
    except (FileNotFoundError, NotADirectoryError):
        if not path.is_dir():
            raise NotFoundError(f"There is no run at {path}. Check the path.") from None
        raise RecordError(f"{path} has lost its config.json. Restore it, or start a new run.") from None
    except ValueError as error:
        raise RecordError(f"{path / 'config.json'} cannot be used; restore it, or start a new run. {error}") from None


def write_config(path: Path, config: TrainConfig) -> None:
    """Save the settings of a run, for people and for a resume."""
    write_text(path / "config.toml", dump_toml(config))
    write_text(path / "config.json", config.model_dump_json(indent=2))


def read_status(path: Path) -> dict[str, Any]:
    """The contents of status.json; empty when the run never began."""
    return read_object(path / "status.json")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All metric lines of a run, a torn last one left out."""
    file = path / "metrics.jsonl"
    return list(read_jsonl(file)) if file.exists() else []


def _move_lines(path: Path, aside: Path, keep: Callable[[dict[str, Any]], bool]) -> int:
    kept: list[str] = []
    moved: list[str] = []
    for line in read_jsonl(path):
        (kept if keep(line) else moved).append(line_of(line))
    if moved:
        aside.mkdir(exist_ok=True)
        with open(aside / path.name, "a", encoding="utf-8") as file:
            file.writelines(moved)
        write_text(path, "".join(kept))
    return len(moved)
