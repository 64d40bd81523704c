"""Continuing an evaluation: its directory, what that was made for, and which samples are still to be played.

runs/eval-…/
  eval.json         the `EvalSpec`, and `made_for`: the environment, model and group size the directory belongs to
  rollouts.jsonl    every rollout, as it finished
  report.json       the summary, once all are done
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax import limits
from benchmax.envs.composed.parts import with_full_paths
from benchmax.envs.datasets.load import ExampleSet
from benchmax.envs.types import Example
from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.files.atomic import write_json
from benchmax.files.digests import file_sha256
from benchmax.models.base import Sampling
from benchmax.models.registry import GOLD, located_model
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import read_rollouts
from benchmax.rollouts.settings import RolloutSettings

if TYPE_CHECKING:
    from benchmax.envs.remote.open_environment import NamedEnv

CONFIG, ROLLOUTS, REPORT = "eval.json", "rollouts.jsonl", "report.json"
MADE_FOR = "made_for"


@dataclass(frozen=True, slots=True)
class EvalSpec:
    """An evaluation as the command line names it. Saved in its directory, it can be continued from there."""

    env: str
    env_args: dict[str, Any] = field(default_factory=dict)
    data: str | None = None
    model: str = GOLD
    base_url: str | None = None
    api_key_var: str | None = None
    rows: int | None = None
    lenient: bool = False
    group_size: int = 1
    concurrency: int = 64
    max_turns: int | None = None
    max_tool_calls: int | None = None
    tool_seconds: float = limits.TOOL_SECONDS
    reward_seconds: float = limits.REWARD_SECONDS
    sampling: dict[str, Any] = field(default_factory=dict)
    sandbox: bool = False
    """Whether the environment is loaded in a sandbox only."""
    folder: str | None = None
    """Where it was started: dotted paths are looked up there."""
    data_sha256: str | None = None
    """Of the rows, when they are a file."""

    def load(self) -> tuple[NamedEnv, ExampleSet]:
        """The environment and the examples to play; raises when either cannot be used.

        Called outside of an event loop, for that cannot be interrupted while code or rows hang.
        """
        from benchmax.envs.remote.open_environment import open_named_env

        named = open_named_env(self.env, self.env_args, lenient=self.lenient, sandbox=self.sandbox, folder=self.folder)
        return named, named.read(self.data, 0, self.rows)

    def settings(self) -> RolloutSettings:
        sampling = Sampling(**self.sampling)
        return RolloutSettings(
            max_turns=self.max_turns, max_tool_calls=self.max_tool_calls, sampling=sampling,
            tool_seconds=self.tool_seconds, reward_seconds=self.reward_seconds,
        )  # fmt: skip

    def located(self) -> EvalSpec:
        """The same with absolute paths, so that it can be continued from any directory."""
        env, model = with_full_paths(self.env), located_model(self.model, self.base_url)
        found = replace(self, env=env, model=model, folder=str(Path.cwd()), data_sha256=None)
        if self.data is not None and Path(self.data).is_file():
            data = Path(self.data).absolute()
            found = replace(found, data=str(data), data_sha256=file_sha256(data))
        return found

    def save(self, directory: Path) -> None:
        """Write the spec, unless one is there already."""
        if not (directory / CONFIG).exists():
            save_config(directory, asdict(self))


def resumable(directory: Path) -> EvalSpec:
    """The spec of an evaluation that can be continued; raises UsageError when it cannot."""
    config = read_config(directory)
    if "env" not in config:
        raise UsageError(f"{directory} was made by evaluate() in Python. Go on there, with the same folder.")
    spec = EvalSpec(**{each.name: config[each.name] for each in fields(EvalSpec) if each.name in config})
    data = Path(spec.data or "")
    if spec.data_sha256 and data.is_file() and file_sha256(data) != spec.data_sha256:
        raise UsageError(
            f"{data} has changed since this evaluation began, and old and new rows cannot be mixed. "
            "Put the file back as it was, or start again in a new folder."
        )
    return spec


def require_new(directory: Path) -> None:
    """Raise UsageError when a new evaluation cannot be kept in this directory."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file. Choose another folder with --out.")
    if (directory / CONFIG).exists():
        raise UsageError(
            f"{directory} already holds an evaluation. Go on with --resume {directory}, or choose another."
        )


def claim(directory: Path, made_for: Mapping[str, Any]) -> None:
    """Record what the directory is for; raises UsageError if it was made for something else."""
    config = read_config(directory) if (directory / CONFIG).is_file() else {}
    before = config.get(MADE_FOR) or _first_rollout(directory)
    for name, wanted in made_for.items():
        there = before.get(name, wanted)
        if there != wanted:
            what = name.replace("_", " ")
            raise UsageError(
                f"{directory} holds an evaluation of {what} {there}, and this one is of {what} {wanted}. "
                "Choose another folder."
            )
    if config.get(MADE_FOR) != made_for:
        save_config(directory, {**config, MADE_FOR: dict(made_for)})


def unfinished_samples(
    done: Mapping[tuple[str, int], Rollout], group_size: int, *, whole_groups: bool
) -> Callable[[Example], list[int]]:
    """The samples of an example that are missing or failed; all of them when siblings are scored together."""

    def samples_of(example: Example) -> list[int]:
        missing = [s for s in range(group_size) if (r := done.get((example["id"], s))) is None or not r.ok]
        return list(range(group_size)) if missing and whole_groups else missing

    return samples_of


def _first_rollout(directory: Path) -> dict[str, Any]:
    """What a directory without such a record was made for, read from its first rollout."""
    path = directory / ROLLOUTS
    first = next(read_rollouts(path), None) if path.exists() else None
    return {"env": first.env, "model": first.model} if first else {}


def save_config(directory: Path, config: Mapping[str, Any]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{directory} is a file. Choose another folder.") from None
    write_json(directory / CONFIG, config)


def read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    if not path.is_file():
        raise NotFoundError(f"{directory} holds no evaluation ({CONFIG} is missing). Check the path.")
    try:
        config = json.loads(path.read_text("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it holds no object")
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}. Start the evaluation again in a new folder.") from None
    return config
