"""From settings to a finished run: load everything, train, end cleanly.

outcome = await train(config)                   a new run
outcome = await resume(Path("runs/arithmetic")) go on where it stopped
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmax.envs.base_env import BaseEnv, with_system_prompt
from benchmax.envs.datasets.split import hold_out
from benchmax.envs.remote.named import open_named_env
from benchmax.envs.types import Example
from benchmax.errors import ConfigError, DatasetError
from benchmax.files.redaction import without_secrets
from benchmax.inference.engine.engine import Engine
from benchmax.inference.local import LocalModel
from benchmax.inference.weights.llama import ModelSpec
from benchmax.inference.weights.store import is_name, resolve
from benchmax.memory import settled
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.backend import EMBEDDED, OnEvent, open_backend
from benchmax.trainer.checkpoint import find_checkpoint
from benchmax.trainer.config import WARM_STARTS, TrainConfig, build_config
from benchmax.trainer.config.fitting import Chosen, fit_to_device
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.loop import Begin, Trainer
from benchmax.trainer.progress import Outcome
from benchmax.trainer.rundir import RunDir, read_status, write_config
from benchmax.trainer.sampler import Draw, EngineSampler, SharedPrompts, rollout_settings
from benchmax.trainer.warm_start.choice import Beginning
from benchmax.trainer.warm_start.lessons import Guide
from benchmax.trainer.warm_start.rows import Scene, sft_sequences

RESUMABLE = {"limits", "eval", "checkpoint", "watch"}
"""Sections whose settings may change when a run is resumed; the others made the run what it is."""

PROMPTS_MEASURED = 64
"""Rows whose length is looked at before the first step; they lie evenly over all."""

MOST_SLOTS = 512
FIRST = Draw("train", 0, 1, 0.0)
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(slots=True)
class Task:
    """What is trained on: an environment and its rows."""

    env: type[BaseEnv] | Callable[[], BaseEnv]
    train: Sequence[Example]
    held_out: Sequence[Example]
    notes: Sequence[str] = ()
    """What a person should know about the rows."""


async def train(
    config: TrainConfig,
    *,
    task: Task | None = None,
    on_event: OnEvent = lambda kind, data: None,
    grace: float | None = None,
) -> Outcome:
    """Start a new run in `output.dir` and train to its end; `grace` are the seconds a stopped step has left."""
    if config.backend != EMBEDDED:
        return await open_backend(config.backend).train(config, task=task, on_event=on_event, grace=grace)
    task = task or load_task(config)
    config = config.model_copy(deep=True)
    _locate(config)
    directory = _fetched(config, on_event)
    chosen = fit_to_device(config, pick_device(config.model.device))
    folder = Path(config.output.dir)
    config.output.name = name = config.output.name or _fresh_name(folder, _short_name(config.data.env))
    path = folder / name
    ours = not path.exists() or not any(path.iterdir())
    run = RunDir.create(path, config)
    try:
        return await _train(run, directory, task, on_event, grace=grace, chosen=chosen)
    except BaseException:
        if ours and not read_status(path):  # it never began: the name stays free for the next try
            shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        run.close()


async def resume(
    path: Path,
    *,
    checkpoint: str = "latest",
    task: Task | None = None,
    changes: dict[str, Any] | None = None,
    on_event: OnEvent = lambda kind, data: None,
    grace: float | None = None,
) -> Outcome:
    """Go on with a run from a checkpoint, as if it had never stopped there; later ones are made anew."""
    run = RunDir.open(path)
    if run.config.backend != EMBEDDED:
        run.close()
        return await open_backend(run.config.backend).resume(
            path, checkpoint=checkpoint, task=task, changes=changes, on_event=on_event, grace=grace
        )
    try:
        if checkpoint != "latest":
            find_checkpoint(path / "checkpoints", checkpoint)
        if changes:
            _change(run, changes)
        task = task or load_task(run.config)
        return await _train(run, _fetched(run.config, on_event), task, on_event, checkpoint, grace)
    finally:
        run.close()


def _fetched(config: TrainConfig, on_event: OnEvent) -> Path:
    """The model's folder; fetching it takes a while, so that is told."""
    name = config.model.name
    return resolve(name, say=lambda what: on_event("fetching", {"message": f"{name}: {what}"}))


def load_task(config: TrainConfig) -> Task:
    """The environment and rows the settings name."""
    if not config.data.env:
        raise ConfigError("No environment was given. Name one: benchmax train main.py:MyEnv --data rows.jsonl.")
    data, notes = config.data, list[str]()
    make, rows_of = open_named_env(data.env, data.env_args, lenient=data.lenient, sandbox=data.sandbox)

    def read(name: str, min_rows: int) -> list[Example]:
        found = rows_of(name, min_rows)
        if left_out := found.report.bad_rows:
            notes.append(f"{left_out} of {found.report.rows} rows of {found.report.source} cannot be used: left out.")
        return list(found)

    rows = read(data.train, data.min_rows)
    held_out = read(data.eval, 1) if data.eval else []
    if not data.eval:
        rows, held_out = _hold_out(config, rows, notes)
    return Task(make, rows, held_out, notes)


def _hold_out(config: TrainConfig, rows: list[Example], notes: list[str]) -> tuple[list[Example], list[Example]]:
    """Keep some rows from training, as long as what is left can still fill a step."""
    data = config.data
    least = min(data.min_rows, config.rollouts.prompts_per_step)
    train, held_out = hold_out(rows, data.eval_share, order=data.hold_out, least=least)
    if len(held_out) < int(len(rows) * data.eval_share) or len(train) < data.min_rows:
        notes.append(
            f"{len(held_out)} of {len(rows)} rows are held out, which leaves {len(train)} to train on. Add rows, or "
            "lower data.eval_share."
        )
    return train, held_out


def _small_steps(config: TrainConfig, rows: Sequence[Example]) -> Iterator[str]:
    """A step takes no prompt twice, so it is smaller than asked for when there are fewer rows."""
    wanted, there = config.rollouts.prompts_per_step, len({row["id"] for row in rows})
    if there < wanted:
        yield f"rollouts.prompts_per_step is {wanted}, but there are {there} different rows: a step takes {there}."


def _locate(config: TrainConfig) -> None:
    """Files by their full path, so that the run can be resumed from any folder."""
    data = config.data
    file, _, name = data.env.partition(":")
    if file.endswith(".py"):
        data.env = str(Path(file).absolute()) + (f":{name}" if name else "")
    for section, field in ((data, "train"), (data, "eval"), (config.sft, "data"), (config, "warm_start")):
        given = getattr(section, field)
        if given and Path(given).is_file():
            setattr(section, field, str(Path(given).absolute()))
    if not is_name(config.model.name) and Path(config.model.name).expanduser().exists():
        config.model.name = str(Path(config.model.name).expanduser().absolute())


def _fresh_name(folder: Path, env: str) -> str:
    """A name nobody has, kept by making its folder: several runs may begin in one second."""
    base = name = f"{env}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        try:
            (folder / name).mkdir(parents=True)
            return name
        except FileExistsError:
            number += 1
            name = f"{base}-{number}"


def _short_name(env: str) -> str:
    """What a run is called after: `main.py:MyEnv` is main, `package.module.MyEnv` is MyEnv."""
    file = env.partition(":")[0]
    return (Path(file).stem if file.endswith(".py") else file.rpartition(".")[2]) or "run"


async def _train(
    run: RunDir,
    directory: Path,
    task: Task,
    on_event: OnEvent,
    checkpoint: str = "latest",
    grace: float | None = None,
    chosen: Sequence[Chosen] = (),
) -> Outcome:
    if not task.train:
        raise DatasetError("There are no training rows. Give data.train a file with at least one usable row.")
    config = run.config
    for note in (*task.notes, *_small_steps(config, task.train)):
        _note(run, note, on_event)
    ModelSpec.from_directory(directory)  # what the engine cannot run is told before anything is loaded
    torch.manual_seed(config.seed)
    device = pick_device(config.model.device)
    with _log_file(run.path / "logs" / "train.log"):
        learner = _learner(config, directory, device)
        async with _sampler(config, directory, device, task) as sampler:
            if some_too_long := await check_lengths(task.train, sampler):
                _note(run, some_too_long, on_event)
            on_event("begins", _facts(run, device, task))
            if config.output.save_tokens:
                run.write_vocabulary(sampler.model.chat.spell([i]) for i in range(sampler.model.chat.vocabulary))
            guide = Guide(sampler.host, sampler.model.chat, rollout_settings(config, FIRST), task.train)
            trainer = Trainer(run, learner, sampler, task.train, task.held_out, on_event, guide, grace)
            trainer.chosen = [each._asdict() for each in chosen]
            begin = await _restore(trainer, sampler, checkpoint)
            with handle_signals(trainer, run), settled():
                return await trainer.train(begin)


def _learner(config: TrainConfig, directory: Path, device: str) -> Learner:
    policy = Policy.from_directory(
        directory,
        tune=config.model.tune,
        lora=config.lora,
        device=device,
        temperature=config.rollouts.temperature,
        gradient_checkpointing=config.model.gradient_checkpointing,
    )
    return Learner(policy, config)


@contextlib.asynccontextmanager
async def _sampler(config: TrainConfig, directory: Path, device: str, task: Task) -> AsyncIterator[EngineSampler]:
    engine = Engine.from_directory(
        directory, device=device, dtype=config.model.sampler_dtype, slots=_slots(config, device)
    )
    model = LocalModel(engine, SharedPrompts(directory), name=config.model.name)
    async with model, EnvHost(task.env) as host:
        yield EngineSampler(host, model, config)


def _slots(config: TrainConfig, device: str) -> int | None:
    """Rows the engine needs: those of a step or of an evaluation, whichever has more. On a GPU others may need the
    rest."""
    if device != "cuda":
        return None
    rollouts = config.rollouts
    a_step = rollouts.prompts_per_step * rollouts.group_size
    return min(MOST_SLOTS, max(a_step, (config.eval.rows or 0) * config.eval.samples, 32), rollouts.concurrency)


def _facts(run: RunDir, device: str, task: Task) -> dict[str, Any]:
    """What a person wants to see confirmed before waiting."""
    held_out = len(task.held_out[: run.config.eval.rows])
    model = run.config.model.name
    return {"run": str(run.path), "model": model, "device": device, "train": len(task.train), "held_out": held_out}


async def check_lengths(rows: Sequence[Example], sampler: EngineSampler) -> str | None:
    """Refuse rows of which none fits the model: every step would be empty. Gives what to say of some that do not."""
    model, system = sampler.model, sampler.host.env.system_prompt
    try:
        tools = (await sampler.host.toolbox()).tools
        lengths = [
            len(model.chat.prompt(with_system_prompt(row["prompt_messages"], system), tools))
            for row in rows[:: -(-len(rows) // PROMPTS_MEASURED)]
        ]
    except Exception:  # the rollouts say why
        return None
    too_long = sum(length >= model.context for length in lengths)
    takes = f"{model.name}, which takes {model.context:,} tokens with its reply"
    if too_long == len(lengths):
        raise DatasetError(
            f"No prompt fits {takes}: of {len(lengths)} rows looked at, the shortest has {min(lengths):,}. "
            "Shorten them, or train a model with a longer context."
        )
    return f"{too_long} of {len(lengths)} rows looked at do not fit {takes}: they teach nothing." if too_long else None


async def _restore(trainer: Trainer, sampler: EngineSampler, which: str) -> Begin | None:
    """Go on from a checkpoint; gives what is to be done first when the run never got to one."""
    folder = trainer.run.path / "checkpoints"
    if which != "latest" or (folder / "latest").exists():
        found = find_checkpoint(folder, which)
        trainer.emit("resumed", step=found.step, lines_moved_aside=trainer.restore(found))
        return None
    trainer.run.rewind(-1)
    return await _beginning(trainer, sampler)


async def _beginning(trainer: Trainer, sampler: EngineSampler) -> Begin | None:
    """The look at the first samples, and the warm start if one is needed."""
    config, file = trainer.config, warm_start_file(trainer.config)
    if trainer.guide is None or (config.recipe == "plain" and config.warm_start == "off" and not file):
        return None
    sequences = []
    if file:
        sequences = await asyncio.to_thread(  # the environment may be in another process, and is waited for
            sft_sequences,
            file,
            sampler.model.chat,
            await Scene.of(sampler.host),
            lenient=config.data.lenient,
            on_note=lambda note: _note(trainer.run, note, trainer.on_event),
        )
    return Beginning(trainer, trainer.guide, sequences).run


def warm_start_file(config: TrainConfig) -> str:
    """The file a warm start is read from; empty when it is made from the environment, or there is none."""
    return config.sft.data or ("" if config.warm_start in WARM_STARTS else config.warm_start)


def _note(run: RunDir, message: str, on_event: OnEvent) -> None:
    on_event("note", run.log_event("note", message=message))


def pick_device(wanted: str) -> str:
    """`auto` is CUDA where there is one."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("model.device is cuda, but torch finds no CUDA device. Use --model.device cpu.")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


@contextlib.contextmanager
def handle_signals(trainer: Trainer, run: RunDir) -> Iterator[None]:
    """Ctrl-C or SIGTERM once ends the run cleanly, twice at once."""
    asked: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if asked:
            run.sweep()
            with contextlib.suppress(OSError):
                run.set_status("interrupted", trainer.progress.step, reason="stopped at once")
            os._exit(130)
        asked.append(number)
        trainer.interrupt()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, on_signal) for number in numbers}
    except ValueError:  # not the main thread: whoever runs us handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """What benchmax logs during the run, kept in the run directory."""
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(_Formatter(LOG_FORMAT))
    root = logging.getLogger("benchmax")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    """A log that cannot be written is no error of its own: what the run itself cannot write ends it, and says so."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class _Formatter(logging.Formatter):
    """What an environment logs may hold a secret of the run; the file must not."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def check_changes(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """The settings a resumed run goes on with. What made the run what it is may be given again, but not changed."""
    tree = config.model_dump()
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values} if isinstance(values, Mapping) else values
    changed = build_config(tree)
    if set(changes) - RESUMABLE:
        _locate(changed)
    before, after = config.model_dump(), changed.model_dump()
    fixed = sorted(section for section in after if section not in RESUMABLE and after[section] != before[section])
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} cannot change when a run is resumed; {', '.join(sorted(RESUMABLE))} can. "
            "Start a new run."
        )
    return changed


def _change(run: RunDir, changes: Mapping[str, Any]) -> None:
    """Change settings of a run that is resumed."""
    run.config = check_changes(run.config, changes)
    write_config(run.path, run.config)
    run.log_event("config_changed", changes=changes)
