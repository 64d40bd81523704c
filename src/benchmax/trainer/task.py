"""What a run trains on: an environment and its rows, as the settings name them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.composed.parts import part_of, with_full_paths
from benchmax.envs.datasets.split import hold_out
from benchmax.envs.remote.open_environment import open_named_env
from benchmax.envs.types import Example
from benchmax.errors import ConfigError
from benchmax.inference.weights.store import is_name
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.config.sections import Section


@dataclass(slots=True)
class Task:
    """An environment, its training rows and its held-out rows."""

    env: type[BaseEnv] | Callable[[], BaseEnv]
    train: Sequence[Example]
    held_out: Sequence[Example]
    notes: Sequence[str] = ()
    """What a person should know about the rows."""


def load_task(config: TrainConfig) -> Task:
    """The environment and rows the settings name."""
    if not config.data.env:
        raise ConfigError("No environment was given. Name one: benchmax train main.py:MyEnv --data rows.jsonl.")
    data, notes = config.data, list[str]()
    named = open_named_env(data.env, data.env_args, lenient=data.lenient, sandbox=data.sandbox)

    def read(name: str, min_rows: int) -> list[Example]:
        found = named.read(name, min_rows, None)
        if left_out := found.report.bad_rows:
            notes.append(f"{left_out} of {found.report.rows} rows of {found.report.source} cannot be used: left out.")
        return list(found)

    rows = read(data.train, data.min_rows)
    if data.eval:
        return Task(named.make, rows, read(data.eval, 1), notes)
    least = min(data.min_rows, config.rollouts.prompts_per_step)  # the others must still fill a step
    train, held_out = hold_out(rows, data.eval_share, order=data.hold_out, least=least, part=part_of)
    if len(held_out) < int(len(rows) * data.eval_share) or len(train) < data.min_rows:
        notes.append(
            f"{len(held_out)} of {len(rows)} rows are held out, which leaves {len(train)} to train on. Add rows, or "
            "lower data.eval_share."
        )
    return Task(named.make, train, held_out, notes)


def file_settings(config: TrainConfig) -> tuple[tuple[Section, str], ...]:
    """The settings that may name a file of rows: each one's section and its own name."""
    return (config.data, "train"), (config.data, "eval"), (config.sft, "data"), (config, "warm_start")


def make_paths_absolute(config: TrainConfig) -> None:
    """Name files by their full path, so that the run can be resumed from any folder."""
    config.data.env = with_full_paths(config.data.env)
    for section, field in file_settings(config):
        given = getattr(section, field)
        if os.path.isfile(given):  # not Path.is_file: a text too long for a path is no error
            setattr(section, field, os.path.abspath(given))
    folder = os.path.expanduser(config.model.name)
    if not is_name(config.model.name) and os.path.exists(folder):
        config.model.name = os.path.abspath(folder)
