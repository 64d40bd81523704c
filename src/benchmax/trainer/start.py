"""From settings to a finished run: load everything, train, end cleanly.

outcome = await train(config)                   a new run
outcome = await resume(Path("runs/arithmetic")) go on with one that stopped
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmax.envs.base_env import primary_key
from benchmax.envs.composed.parts import short_name
from benchmax.envs.types import Example
from benchmax.errors import ConfigError, DatasetError
from benchmax.files.logs import log_file
from benchmax.inference.engine.engine import Engine, pick_device
from benchmax.inference.local_model import LocalModel
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import TokenModel
from benchmax.inference.weights.llama import ModelSpec
from benchmax.inference.weights.store import resolve
from benchmax.memory import gc_frozen
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.backend import EMBEDDED, OnEvent, open_backend
from benchmax.trainer.checkpoint import find_checkpoint
from benchmax.trainer.config import WARM_STARTS, TrainConfig, build_config
from benchmax.trainer.config.chosen_settings import ChosenSetting, fit_to_device
from benchmax.trainer.interrupts import handle_signals
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.loop import Trainer, WarmUp
from benchmax.trainer.progress import Outcome
from benchmax.trainer.rundir import RunDir, read_status, write_config
from benchmax.trainer.sampling.rollout_settings import Draw, rollout_settings
from benchmax.trainer.sampling.sampler import EngineSampler, Sampler, prompt_tokens
from benchmax.trainer.task import Task, load_task, make_paths_absolute
from benchmax.trainer.warm_start.sft_rows import PromptContext, sft_sequences
from benchmax.trainer.warm_start.solutions import Solver
from benchmax.trainer.warm_start.warm_start import WarmStart

RESUMABLE = {"limits", "eval", "checkpoint", "watch"}
"""Sections whose settings may change when a run is resumed; the others made the run what it is."""
PROMPTS_MEASURED = 64
"""Rows whose length is measured before the first step, spread evenly over all."""
MOST_SLOTS = 512


async def train(
    config: TrainConfig,
    *,
    task: Task | None = None,
    on_event: OnEvent = lambda kind, data: None,
    grace: float | None = None,
) -> Outcome:
    """Start a new run in `output.dir` and train to its end; a stopped step has `grace` seconds left."""
    if config.backend != EMBEDDED:
        return await open_backend(config.backend).train(config, task=task, on_event=on_event, grace=grace)
    task = task or load_task(config)
    config = config.model_copy(deep=True)
    make_paths_absolute(config)
    directory = _fetch_model(config, on_event)
    chosen = fit_to_device(config, pick_device(config.model.device).type)
    with new_run(config) as run:
        return await _train(run, directory, task, on_event, grace=grace, chosen=chosen)


@contextlib.contextmanager
def new_run(config: TrainConfig) -> Iterator[RunDir]:
    """A fresh run directory in `output.dir`; it is removed again when the run never began."""
    folder = Path(config.output.dir)
    config.output.name = name = config.output.name or _fresh_name(folder, short_name(config.data.env))
    path = folder / name
    is_new = not path.exists() or not any(path.iterdir())
    run = RunDir.create(path, config)  # outside: a folder that another run has just taken is not ours to remove
    try:
        with contextlib.closing(run):
            yield run
    except BaseException:
        if is_new and not read_status(path):  # it never began: the name stays free for the next try
            shutil.rmtree(path, ignore_errors=True)
        raise


async def resume(
    path: Path,
    *,
    checkpoint: str = "latest",
    task: Task | None = None,
    changes: Mapping[str, Any] | None = None,
    on_event: OnEvent = lambda kind, data: None,
    grace: float | None = None,
) -> Outcome:
    """Go on with a run from a checkpoint, as if it had never stopped there; later checkpoints are made anew."""
    with contextlib.closing(RunDir.open(path)) as run:
        if run.config.backend != EMBEDDED:
            run.close()  # the backend opens it itself
            return await open_backend(run.config.backend).resume(
                path, checkpoint=checkpoint, task=task, changes=changes, on_event=on_event, grace=grace
            )
        prepare_resume(run, checkpoint, changes)
        task = task or load_task(run.config)
        return await _train(run, _fetch_model(run.config, on_event), task, on_event, checkpoint, grace)


def prepare_resume(run: RunDir, checkpoint: str, changes: Mapping[str, Any] | None) -> None:
    """Refuse a checkpoint that is not there, and record the settings that change."""
    if checkpoint != "latest":
        find_checkpoint(run.path / "checkpoints", checkpoint)
    if changes:
        run.config = check_changes(run.config, changes)
        write_config(run.path, run.config)
        run.log_event("config_changed", changes=changes)


def check_changes(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """The settings a resumed run goes on with; ConfigError for a change of what made the run what it is."""
    tree = config.model_dump()
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values} if isinstance(values, Mapping) else values
    changed = build_config(tree)
    if set(changes) - RESUMABLE:
        make_paths_absolute(changed)
    before, after = config.model_dump(), changed.model_dump()
    fixed = sorted(section for section in after if section not in RESUMABLE and after[section] != before[section])
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} cannot change when a run is resumed; {', '.join(sorted(RESUMABLE))} can. "
            "Start a new run."
        )
    return changed


def _fetch_model(config: TrainConfig, on_event: OnEvent) -> Path:
    """The model's folder; fetching takes a while, so its progress is reported."""
    name = config.model.name
    return resolve(name, say=lambda what: on_event("fetching", {"message": f"{name}: {what}"}))


def _fresh_name(folder: Path, env: str) -> str:
    """A new run name, reserved by making its folder: several runs may begin in one second."""
    base = name = f"{env}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        try:
            (folder / name).mkdir(parents=True)
            return name
        except FileExistsError:
            number += 1
            name = f"{base}-{number}"


async def _train(
    run: RunDir,
    directory: Path,
    task: Task,
    on_event: OnEvent,
    checkpoint: str = "latest",
    grace: float | None = None,
    chosen: Sequence[ChosenSetting] = (),
) -> Outcome:
    check_rows(run, task, on_event)
    config = run.config
    ModelSpec.from_directory(directory)  # refuses a model that the engine cannot run before anything is loaded
    torch.manual_seed(config.seed)
    device = pick_device(config.model.device).type
    with log_file(run.path / "logs" / "train.log"):
        learner = load_learner(config, directory)
        async with _open_sampler(config, directory, device, task) as sampler:
            trainer = await make_trainer(run, learner, sampler, task, on_event, grace, device)
            trainer.chosen = [each._asdict() for each in chosen]
            warm_up = None if restore(trainer, checkpoint) else await _warm_start(trainer)
            with handle_signals(trainer.interrupt, trainer.record_kill), gc_frozen():
                return await trainer.train(warm_up)


def check_rows(run: RunDir, task: Task, on_event: OnEvent) -> None:
    """Refuse a task without rows, and report what a person should know about those there are."""
    if not task.train:
        raise DatasetError("There are no training rows. Give data.train a file with at least one usable row.")
    wanted, there = run.config.rollouts.prompts_per_step, len({row["id"] for row in task.train})
    notes = list(task.notes)
    if there < wanted:  # a step takes no prompt twice
        notes.append(
            f"rollouts.prompts_per_step is {wanted}, but there are {there} different rows: a step takes {there}."
        )
    for message in notes:
        on_event("note", run.log_event("note", message=message))


async def make_trainer(
    run: RunDir, learner: Learner, sampler: Sampler, task: Task, on_event: OnEvent, grace: float | None, device: str
) -> Trainer:
    """The loop over a run directory, once everything is loaded; `device` is for people to read."""
    config, host, chat = run.config, sampler.host, sampler.model.chat
    if some_too_long := await check_lengths(task.train, host, sampler.model):
        on_event("note", run.log_event("note", message=some_too_long))
    held_out = len(task.held_out[: config.eval.rows])
    facts = {"run": str(run.path), "model": config.model.name, "device": device}
    on_event("begins", facts | {"train": len(task.train), "held_out": held_out})
    if config.output.save_tokens:
        run.write_vocabulary(chat.spell([token]) for token in range(chat.vocabulary))
    solver = Solver(host, chat, rollout_settings(config, Draw("train", 0, 1, 0.0)), task.train)
    return Trainer(run, learner, sampler, task.train, task.held_out, on_event, solver, grace, primary_key(host.env))


def load_learner(config: TrainConfig, directory: Path) -> Learner:
    """The model to train, with its optimizer."""
    policy = Policy.from_directory(
        directory,
        tune=config.model.tune,
        lora=config.lora,
        device=pick_device(config.model.device).type,
        temperature=config.rollouts.temperature,
        gradient_checkpointing=config.model.gradient_checkpointing,
    )
    return Learner(policy, config)


@contextlib.asynccontextmanager
async def _open_sampler(config: TrainConfig, directory: Path, device: str, task: Task) -> AsyncIterator[EngineSampler]:
    slots = _slots(config) if device == "cuda" else None
    engine = Engine.from_directory(directory, device=device, dtype=config.model.sampler_dtype, slots=slots)
    model = LocalModel(engine, ChatTokens(directory), name=config.model.name)
    async with model, EnvHost(task.env) as host:
        yield EngineSampler(host, model, config)


def _slots(config: TrainConfig) -> int:
    """Rows the engine needs on a GPU, which it may share: those of a step or of an evaluation, whichever has more."""
    rollouts = config.rollouts
    a_step = rollouts.prompts_per_step * rollouts.group_size
    return min(MOST_SLOTS, max(a_step, (config.eval.rows or 0) * config.eval.samples, 32), rollouts.concurrency)


async def check_lengths(rows: Sequence[Example], host: EnvHost, model: TokenModel) -> str | None:
    """Refuse rows of which none fits the model: every step would be empty. Returns a note when some do not fit."""
    some = rows[:: -(-len(rows) // PROMPTS_MEASURED)]
    try:
        lengths = [len(await prompt_tokens(host, model.chat, row)) for row in some]
    except Exception:  # the rollouts report it
        return None
    too_long = sum(length >= model.context for length in lengths)
    takes = f"{model.name}, which takes {model.context:,} tokens with its reply"
    if too_long == len(lengths):
        raise DatasetError(
            f"No prompt fits {takes}: of {len(lengths)} rows looked at, the shortest has {min(lengths):,}. "
            "Shorten them, or train a model with a longer context."
        )
    return f"{too_long} of {len(lengths)} rows looked at do not fit {takes}: they teach nothing." if too_long else None


def restore(trainer: Trainer, which: str) -> bool:
    """Go on from a checkpoint; False for a run that never got to one, which begins again."""
    folder = trainer.run.path / "checkpoints"
    if which == "latest" and not (folder / "latest").exists():
        trainer.run.rewind(-1)
        return False
    found = find_checkpoint(folder, which)
    trainer.emit("resumed", step=found.step, lines_moved_aside=trainer.restore(found))
    return True


async def _warm_start(trainer: Trainer) -> WarmUp | None:
    """What a new run does before its first step."""
    config, solver, sequences = trainer.config, trainer.solver, list[TokenSequence]()
    assert solver is not None
    file = config.sft.data or ("" if config.warm_start in WARM_STARTS else config.warm_start)
    if config.recipe == "plain" and config.warm_start == "off" and not file:
        return None
    if file:
        sequences = await asyncio.to_thread(  # the environment may be in another process, and is waited for
            sft_sequences,
            file,
            solver.chat,
            await PromptContext.of(solver.host),
            lenient=config.data.lenient,
            on_note=lambda message: trainer.emit("note", message=message),
        )
    return WarmStart(trainer, solver, sequences).run
